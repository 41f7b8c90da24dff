// Shared by the four composers. `composer.publish()` is what the page's own publish button does.
// Nothing here ever sends a request a second time by itself.
window.composer = {
  twice: false,
  publish: () => {},
  fields: () => ({ title: document.getElementById('title').value.trim(), body: document.getElementById('body').value }),

  // Shows or clears the message under the title; true when there is a title.
  checkTitle() {
    const title = document.getElementById('title');
    const wrong = title.value.trim() === '';
    document.getElementById('title-error').textContent = wrong ? 'Give your notice a title.' : '';
    title.closest('.field').classList.toggle('wrong', wrong);
    title.toggleAttribute('aria-invalid', wrong);
    if (wrong) title.focus();
    return !wrong;
  },

  // One request. Resolves to the JSON of a success; throws an Error whose message is for the person.
  async send(method, url, value, more = {}) {
    let response;
    try {
      const body = JSON.stringify(value);
      const headers = { 'Content-Type': 'application/json', Accept: 'application/json', ...more };
      if (this.twice && value.status) fetch(url, { method, headers, body });
      response = await fetch(url, { method, headers, body });
    } catch {
      throw new Error('No answer came from the site. It may or may not have been saved.');
    }
    if (response.redirected) throw new Error('You have been signed out. Sign in and try again.');
    const text = await response.text().catch(() => '');
    let answer = null;
    try { answer = JSON.parse(text); } catch { /* said below: an answer that is not JSON is no success */ }
    if (response.ok && answer) return answer;
    if (response.ok) throw new Error('The site’s answer could not be read. Look at your notices.');
    throw new Error(answer?.error ?? `The site answered ${response.status}. Your text is still here.`);
  },

  toast(text, link) {
    const box = document.getElementById('toast');
    document.getElementById('alert').textContent = '';
    box.textContent = text;
    if (link) {
      const anchor = Object.assign(document.createElement('a'), { href: link, textContent: 'View it' });
      box.append(' ', anchor);
    }
  },

  fail(text) {
    document.getElementById('toast').textContent = '';
    document.getElementById('alert').textContent = text;
  },

  published() { document.dispatchEvent(new CustomEvent('composer:published')); },

  // Calls `save` once typing has paused for `wait` milliseconds.
  whenTyped(save, wait) {
    let timer;
    document.addEventListener('input', (event) => {
      if (event.target.id !== 'title' && event.target.id !== 'body') return;
      clearTimeout(timer);
      timer = setTimeout(save, wait);
    });
  },
};
document.addEventListener('input', (event) => {
  if (event.target.id === 'title' && event.target.value.trim()) {
    document.getElementById('title-error').textContent = '';
    event.target.closest('.field').classList.remove('wrong');
    event.target.removeAttribute('aria-invalid');
  }
});
