// Each entry is one way to write that the driver of a browser may not see. `argument` comes from the record.
const target = (name) => `/hazard/${name}`;
const helper = (name) => `/hazard-page/${name}`;
const post = (name, more = {}) => fetch(target(name), { method: 'POST', body: '1', ...more });

const hiddenFrame = (url) => {
  const frame = document.createElement('iframe');
  frame.hidden = true;
  frame.src = url;
  document.body.append(frame);
  return frame;
};

const hiddenForm = (name, more = {}) => {
  const form = Object.assign(document.createElement('form'), { method: 'post', action: target(name), ...more });
  form.innerHTML = '<input type="hidden" name="a" value="1">';
  document.body.append(form);
  return form;
};

const whenPagehide = (send) => addEventListener('pagehide', send);

const otherOrigin = () => {
  const host = location.hostname === 'localhost' ? '127.0.0.1' : 'localhost';
  return `${location.protocol}//${host}:${location.port}`;
};

const HAZARDS = {
  fetch: () => post('fetch'),
  put: () => post('put', { method: 'PUT' }),
  keepalive: () => post('keepalive', { keepalive: true }),
  xhr: () => {
    const request = new XMLHttpRequest();
    request.open('POST', target('xhr'));
    request.send('1');
  },
  beacon: () => navigator.sendBeacon(target('beacon'), '1'),
  unload_beacon: () => {
    whenPagehide(() => navigator.sendBeacon(target('unload_beacon'), '1'));
    hiddenFrame(helper('unload_beacon'));
  },
  unload_keepalive: () => {
    whenPagehide(() => post('unload_keepalive', { keepalive: true }));
    hiddenFrame(helper('unload_keepalive'));
  },
  fetchlater: () => {
    if (window.fetchLater) {
      fetchLater(target('fetchlater'), { method: 'POST', body: '1', activateAfter: 0 });
    }
  },
  worker: () => {
    const url = new URL(target('worker'), location.href).href;
    const code = `fetch('${url}', {method: 'POST', body: '1', mode: 'no-cors'})`;
    new Worker(URL.createObjectURL(new Blob([code])));
  },
  sharedworker: () => new SharedWorker(helper('shared.js')),
  serviceworker: async () => {
    if (!navigator.serviceWorker) return;
    await navigator.serviceWorker.register('/hazard-service-worker.js');
    const registration = await navigator.serviceWorker.ready;
    registration.active.postMessage('go');
  },
  ws: () => {
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}${target('ws')}`);
    socket.onopen = () => socket.send('publish');
  },
  popup: () => window.open(helper('popup')),
  noopener: () => window.open(helper('noopener'), '_blank', 'noopener'),
  xframe: () => {
    const frame = hiddenFrame(otherOrigin() + helper('xframe'));
    frame.onload = () => frame.contentWindow.postMessage('go', '*');
  },
  csp: () => hiddenFrame(helper('csp')),
  download_post: () => hiddenForm('download_post').submit(),
  get_effect: () => fetch(`${target('get_effect')}?publish=1`),
  img_effect: () => { new Image().src = `${target('img_effect')}?publish=1`; },
  redirect307: () => fetch(`${target('redirect307')}/start`, { method: 'POST', body: '1' }),
  preload: () => {
    const link = Object.assign(document.createElement('link'), { rel: 'prefetch', href: target('preload') });
    document.head.append(link);
  },
  specrules: () => {
    const rules = Object.assign(document.createElement('script'), { type: 'speculationrules' });
    rules.text = JSON.stringify({
      prerender: [{ source: 'list', urls: [target('specrules')], eagerness: 'immediate' }],
    });
    document.head.append(rules);
  },
  form_blank: () => hiddenForm('form_blank', { target: '_blank' }).submit(),
  link_ping: () => {
    const link = Object.assign(document.createElement('a'), { href: '#ping', textContent: 'ping' });
    link.setAttribute('ping', target('link_ping'));
    link.hidden = true;
    document.body.append(link);
    link.click();
  },

  // Upon an event.
  focus_post: () => addEventListener('focusin', () => post('focus_post')),
  hover_post: () => addEventListener('mouseover', (event) => {
    if (event.target.closest('button, a')) post('hover_post');
  }),
  scroll_post: () => {
    document.body.style.minHeight = '200vh';
    addEventListener('scroll', () => post('scroll_post'), { once: true });
  },
  resize_post: () => addEventListener('resize', () => post('resize_post')),
  visibility_post: () => document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden') navigator.sendBeacon(target('visibility_post'), '1');
  }),
  beforeunload_post: () => addEventListener('beforeunload', () => post('beforeunload_post', { keepalive: true })),

  // Misuse of the page's own publish request.
  double_submit: () => { if (window.composer) composer.twice = true; },
  publish_in_prepare: () => {
    const title = document.getElementById('title');
    if (title && window.composer) title.addEventListener('input', () => composer.publish(), { once: true });
  },
  reload_after: () => {
    const key = `reloaded ${location.pathname}`;
    if (window.composer || sessionStorage.getItem(key)) return;
    sessionStorage.setItem(key, 'yes');
    setTimeout(() => location.reload(), 50);
  },

  webrtc: (argument) => {
    const connection = new RTCPeerConnection({ iceServers: [{ urls: `stun:127.0.0.1:${argument}` }] });
    connection.createDataChannel('x');
    connection.createOffer().then((offer) => connection.setLocalDescription(offer));
  },
};

function startHazard({ name, argument, afterPublish }) {
  const run = () => HAZARDS[name](argument);
  if (afterPublish) document.addEventListener('composer:published', run, { once: true });
  else if (document.readyState === 'complete') run();
  else addEventListener('load', run, { once: true });
}
