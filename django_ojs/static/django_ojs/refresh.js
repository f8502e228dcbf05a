'use strict';
// Reloads the page, but not while its user is busy with it.
(function () {
    const due = Date.now() + 1000 * Number(document.currentScript.dataset.seconds);

    function opened() {
        return [...document.querySelectorAll('details')].some(function (details) {
            return details.open && !details.hasAttribute('data-open');
        });
    }

    document.addEventListener('DOMContentLoaded', function () {
        document.querySelectorAll('#content details[open]').forEach(function (details) {
            details.setAttribute('data-open', '');
        });
    });

    function busy() {
        const focused = document.activeElement;
        return document.hidden || opened()
            || document.querySelector('input.action-select:checked, #action-toggle:checked') !== null
            || focused !== null && focused.matches('input:not([type=checkbox]), select, textarea');
    }

    setInterval(function () {
        if (Date.now() < due) {
            return;
        }
        const waits = busy();
        document.querySelectorAll('.ojs-paused').forEach(function (note) {
            note.hidden = !waits;
        });
        if (!waits) {
            location.reload();
        }
    }, 500);
}());
