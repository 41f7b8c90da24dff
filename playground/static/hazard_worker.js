self.onactivate = (event) => event.waitUntil(clients.claim());
self.onmessage = () => fetch('/hazard/serviceworker', { method: 'POST', body: '1' });
