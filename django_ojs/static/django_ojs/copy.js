'use strict';
// Buttons that copy the text of the element that they name.
document.addEventListener('click', function (event) {
    const button = event.target.closest('button[data-copies]');
    if (button === null || !navigator.clipboard) {
        return;
    }
    const text = document.getElementById(button.dataset.copies).textContent;
    navigator.clipboard.writeText(text).then(function () {
        button.textContent = button.dataset.done;
    });
});
document.addEventListener('DOMContentLoaded', function () {
    document.querySelectorAll('button[data-copies]').forEach(function (button) {
        button.hidden = !navigator.clipboard;
    });
});
