"""WordPress flows that do in `prepare` what a flow may not do, or put into the page what a page should not do. Loaded
by file, as a person's own flow would be."""

from __future__ import annotations

from typing import ClassVar

from flows.flow import Intent, Submit
from flows.pages import ComposerPage
from flows.wordpress import Post, WordPressPost, WordPressProblem


class ClicksInPrepare(WordPressPost):
    """Makes the gesture itself, and keeps what the editor then says."""

    name = "odd-clicks-in-prepare"
    said: ClassVar[str | None] = None

    async def prepare(self, page: ComposerPage, intent: Intent[Post]) -> Submit:
        submit = await super().prepare(page, intent)
        await submit.control.click()
        await page.locator(".components-notice.is-error").wait_for()
        type(self).said = await self.validation_message(page, intent)
        return submit


class _Sends(WordPressPost):
    """Sends one request from the page, as a script in it could; the answer's status is in the error it ends with."""

    script: ClassVar[str]

    async def prepare(self, page: ComposerPage, intent: Intent[Post]) -> Submit:
        await super().prepare(page, intent)
        fields = "{id: wp.data.select('core/editor').getCurrentPostId(), status: 'publish', title: 't', content: 'c'}"
        status = await page.evaluate(
            f"""async () => {{
                const fields = {fields}, root = wpApiSettings.root, nonce = {{'X-WP-Nonce': wpApiSettings.nonce}};
                const item = root + 'wp/v2/posts/' + fields.id, json = {{...nonce, 'Content-Type': 'application/json'}};
                const put = {{...nonce, 'X-HTTP-Method-Override': 'PUT'}};
                const query = new URLSearchParams(fields);
                const answer = await ({self.script});
                return answer.status + ' ' + answer.headers.get('x-interlock');
            }}"""
        )
        raise WordPressProblem(f"answered with {status}")


class GetsByQuery(_Sends):
    name = "odd-gets-by-query"
    script = "fetch(item + '&_method=PUT&' + query, {headers: nonce})"


class GetsByHeader(_Sends):
    name = "odd-gets-by-header"
    script = "fetch(item + '&' + query, {headers: put})"


class SendsBatch(_Sends):
    name = "odd-sends-batch"
    script = """fetch(root + 'batch/v1', {method: 'POST', headers: json, body: JSON.stringify({requests: [
        {path: '/wp/v2/posts/' + fields.id, method: 'PUT', body: fields},
        {path: '/wp/v2/posts', body: {status: 'publish', title: 'second'}}]})})"""


class SendsAutosave(_Sends):
    name = "odd-sends-autosave"
    script = """fetch(item + '/autosaves', {method: 'POST', headers: json,
        body: JSON.stringify({status: 'publish', title: 't', content: 'c'})})"""


class ChangesOneCharacter(WordPressPost):
    """On its way out the title gets a character that the editor never showed."""

    name = "odd-changes-one-character"

    async def prepare(self, page: ComposerPage, intent: Intent[Post]) -> Submit:
        submit = await super().prepare(page, intent)
        await page.evaluate(
            """() => {
                const plain = window.fetch;
                window.fetch = (url, init) => plain(url, init && init.body && init.body.includes('"publish"')
                    ? {...init, body: JSON.stringify({...JSON.parse(init.body), title: 'Another title'})} : init);
            }"""
        )
        return submit
