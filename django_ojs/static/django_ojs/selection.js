'use strict';
// Selects the rows of a list where a theme has a script of its own for that, which knows the theme's elements.
document.addEventListener('DOMContentLoaded', function () {
    const form = document.getElementById('changelist-form');
    const all = document.getElementById('action-toggle');
    const counter = form && form.querySelector('.action-counter');
    if (!all || !counter) {
        return;
    }
    let last = null;
    let shift = false;

    function boxes() {
        return [...form.querySelectorAll('input.action-select')];
    }

    function show(name, shown) {
        form.querySelectorAll(`.actions ${name}`).forEach(function (one) {
            one.classList.toggle('hidden', !shown);
        });
    }

    function update(across) {
        const chosen = boxes().filter((box) => box.checked).length;
        all.checked = chosen > 0 && chosen === boxes().length;
        boxes().forEach(function (box) {
            box.closest('tr').classList.toggle('selected', box.checked);
        });
        form.querySelector('input.select-across').value = across ? 1 : 0;
        counter.textContent = interpolate(
            ngettext('%(sel)s of %(cnt)s selected', '%(sel)s of %(cnt)s selected', chosen),
            {sel: chosen, cnt: counter.dataset.actionsIcnt}, true);
        show('.action-counter', !across);
        show('.question', all.checked && !across);
        show('.all', across);
        show('.clear', across);
    }

    function check(checked) {
        boxes().forEach(function (box) {
            box.checked = checked;
        });
    }

    form.addEventListener('click', function (event) {
        shift = event.shiftKey;
        if (event.target.closest('.question a')) {
            event.preventDefault();
            update(true);
        } else if (event.target.closest('.clear a')) {
            event.preventDefault();
            check(false);
            update(false);
        }
    });

    form.addEventListener('change', function (event) {
        if (event.target === all) {
            check(all.checked);
        } else if (event.target.matches('input.action-select')) {
            const found = boxes();
            const ends = [found.indexOf(last), found.indexOf(event.target)].sort((a, b) => a - b);
            if (shift && ends[0] >= 0) {
                found.slice(ends[0], ends[1] + 1).forEach(function (box) {
                    box.checked = event.target.checked;
                });
            }
            last = event.target;
        } else {
            return;
        }
        update(false);
    });

    window.addEventListener('pageshow', () => update(false));
});
