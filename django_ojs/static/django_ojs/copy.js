'use strict';
// Buttons that copy the text of the element that they name. The style sheet shows them where that can be
// done, those too that come into the page later.
if (navigator.clipboard) {
    document.documentElement.classList.add('ojs-copies');
}
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
