'use strict';
// Loads the page anew, but never under the hands of its user.
(function () {
    const due = Date.now() + 1000 * Number(document.currentScript.dataset.seconds);

    function busy() {
        const focused = document.activeElement;
        return document.hidden
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
