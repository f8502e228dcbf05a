'use strict';
// Keeps the parts of a page that are marked with data-live up to date: asks for the page again, and
// changes what is different. Elements stay, and with them what is open, focused or scrolled to.
(function () {
    const period = 1000 * Number(document.currentScript.dataset.seconds);
    let due = Date.now() + period;
    let asking = false;

    function parts() {
        return [...document.querySelectorAll('[data-live][id]')];
    }

    function boxes(root) {
        return root.querySelectorAll('input.action-select').length;
    }

    // What an element is recognised by, though it has moved.
    function key(node) {
        if (node.nodeType !== Node.ELEMENT_NODE) {
            return null;
        }
        const box = node.tagName === 'TR' ? node.querySelector('input.action-select') : null;
        return node.id || node.dataset.key || (box === null ? null : box.value);
    }

    function attributes(old, fresh) {
        // Readers open and close details, and a script shows notes.
        const own = ['open', 'hidden', 'checked'];
        for (const {name, value} of [...fresh.attributes]) {
            if (!own.includes(name) && old.getAttribute(name) !== value) {
                old.setAttribute(name, value);
            }
        }
        for (const {name} of [...old.attributes]) {
            if (!own.includes(name) && !fresh.hasAttribute(name)) {
                old.removeAttribute(name);
            }
        }
    }

    function children(old, fresh) {
        const known = new Map();
        for (const child of old.children) {
            if (key(child) !== null) {
                known.set(key(child), child);
            }
        }
        let place = old.firstChild;
        for (const node of [...fresh.childNodes]) {
            const name = key(node);
            let found = name === null ? place : known.get(name) || null;
            if (name === null) {
                while (found !== null && (found.nodeName !== node.nodeName || key(found) !== null)) {
                    found = found.nextSibling;
                }
            }
            if (found === null || found.nodeName !== node.nodeName) {
                old.insertBefore(document.importNode(node, true), place);
                continue;
            }
            if (found === place) {
                place = place.nextSibling;
            } else {
                old.insertBefore(found, place);
            }
            renew(found, node);
        }
        while (place !== null) {
            const next = place.nextSibling;
            place.remove();
            place = next;
        }
    }

    function renew(old, fresh) {
        if (old.isEqualNode(fresh)) {
            return;
        }
        if (old.nodeType === Node.ELEMENT_NODE) {
            attributes(old, fresh);
            children(old, fresh);
        } else {
            old.nodeValue = fresh.nodeValue;
        }
    }

    // Rows do not move under the hands of who selects some, or writes in one.
    function busy() {
        const focused = document.activeElement;
        return document.querySelector('input.action-select:checked, #action-toggle:checked') !== null
            || focused !== null && focused.closest('[data-live]') !== null
            && focused.matches('input:not([type=checkbox]), select, textarea');
    }

    function show(name, shown) {
        document.querySelectorAll(name).forEach(function (note) {
            note.hidden = !shown;
        });
    }

    async function ask() {
        const known = parts().filter((part) => part.dataset.live !== '');
        const versions = known.map((part) => `${part.id}=${part.dataset.live}`).join(' ');
        const answer = await fetch(location.href, {
            cache: 'no-store', headers: {'X-OJS-Live': versions || 'parts'},
        });
        if (answer.redirected) {
            location.reload();
            return;
        }
        if (!answer.ok) {
            throw new Error(`the server answered ${answer.status}`);
        }
        const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
        if (busy()) {
            return;
        }
        if (boxes(page) !== boxes(document)) {
            // The script of the list knows its boxes from when it was loaded.
            location.reload();
            return;
        }
        const focused = document.activeElement;
        for (const part of parts()) {
            const fresh = page.getElementById(part.id);
            if (fresh !== null) {
                renew(part, fresh);
            }
        }
        if (focused !== null && focused !== document.activeElement && focused.isConnected) {
            focused.focus({preventScroll: true});
        }
    }

    const timer = setInterval(function () {
        if (document.querySelector('.ojs-refresh') === null) {
            // What the page is about is over.
            clearInterval(timer);
            return;
        }
        if (asking || document.hidden || Date.now() < due) {
            return;
        }
        show('.ojs-paused', busy());
        if (busy()) {
            return;
        }
        asking = true;
        ask().then(() => show('.ojs-stale', false), () => show('.ojs-stale', true)).finally(function () {
            asking = false;
            due = Date.now() + period;
        });
    }, 500);
}());
