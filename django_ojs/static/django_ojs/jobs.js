'use strict';
// The keys of the job list, which are explained below it, and suggestions for the last word of a search.
(function () {
    const MENUS = 'details.ojs-menu[open], details.ojs-keys[open], details.ojs-save[open]';

    function row() {
        return document.activeElement.closest('.ojs-job');
    }

    function move(by) {
        const links = [...document.querySelectorAll('.ojs-job .ojs-id')];
        const here = row();
        const place = here === null ? -1 : links.indexOf(here.querySelector('.ojs-id'));
        const next = links[Math.min(Math.max(place + by, 0), links.length - 1)];
        if (next) {
            next.focus();
            next.closest('.ojs-job').scrollIntoView({block: 'nearest'});
        }
    }

    function close() {
        const open = document.querySelectorAll(MENUS);
        open.forEach(function (details) {
            const within = details.contains(document.activeElement);
            details.open = false;
            if (within) {
                details.querySelector('summary').focus();
            }
        });
        if (open.length === 0 && document.activeElement.id === 'searchbar') {
            document.activeElement.blur();
        }
    }

    const KEYS = {
        '/': function () {
            const field = document.getElementById('searchbar');
            field.focus();
            field.select();
        },
        'j': function () { move(1); },
        'k': function () { move(-1); },
        'r': function () {
            const here = row();
            const link = here && here.querySelector('.ojs-again');
            if (link) {
                link.click();
            }
        },
        '?': function () {
            const help = document.querySelector('details.ojs-keys');
            help.open = !help.open;
            help.querySelector('summary').focus();
        }
    };

    document.addEventListener('DOMContentLoaded', function () {
        const field = document.getElementById('searchbar');
        const list = document.getElementById('ojs-suggestions');
        if (field === null || list === null) {
            return;
        }
        const words = [...list.options].map(function (option) { return option.value; });
        field.setAttribute('list', list.id);
        field.addEventListener('input', function () {
            const before = field.value.slice(0, field.value.lastIndexOf(' ') + 1);
            words.forEach(function (word, place) { list.options[place].value = before + word; });
        });
    });

    document.addEventListener('keydown', function (event) {
        if (event.key === 'Escape') {
            close();
            return;
        }
        const typing = event.target.closest('input:not([type=checkbox]), select, textarea, [contenteditable]');
        const act = KEYS[event.key];
        if (act && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
            event.preventDefault();
            act();
        }
    });
}());
