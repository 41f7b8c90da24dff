"""A real WordPress on loopback for the tests: PHP's own server and a private MariaDB, in a folder that goes with it.

What is needed comes from Debian's packages, installed by apt where that may be done. The database listens on a socket
in that folder and on no network; ground truth is read from it directly, past WordPress. One installation is served
under two addresses, at the root and in the folder /blog, which WordPress takes for two sites with cookies of their
own. Only processes that were started here are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PASSWORD = "correct-horse-battery"
WRITER = "writer"
"""An author: may publish, may not post unfiltered HTML. The name that is shown differs from the one to sign in with."""
OTHER = "other"
CONTRIBUTOR = "contributor"
"""May write and hand in for review, may not publish."""

PACKAGES = (
    ("php-cli", "php-mysql", "php-gd", "php-xml", "php-mbstring", "php-curl", "php-intl", "php-zip", "mariadb-server"),
    # Recommended packages would bring translations for every language and a web server that is not wanted.
    ("wordpress", "wordpress-l10n-", "wordpress-theme-twentytwentythree"),
)
SOURCE = Path("/usr/share/wordpress")
APT_S = 240.0
"""Packages at the first use; below the time limit of a test, so that what failed is said."""
START_S = 60.0

_CONFIG = """<?php
// PHP's own server ends an answer by closing; what stands before PHP elsewhere says how long an answer is.
ob_start(function ($body, $phase) {
    $whole = PHP_OUTPUT_HANDLER_START | PHP_OUTPUT_HANDLER_FINAL;
    if (($phase & $whole) === $whole && !headers_sent()) { header('Content-Length: ' . strlen($body)); }
    return $body;
});
define('DB_NAME', 'wp'); define('DB_USER', 'root'); define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:' . dirname(__DIR__) . '/db.sock');
define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');
foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY',
          'AUTH_SALT', 'SECURE_AUTH_SALT', 'LOGGED_IN_SALT', 'NONCE_SALT'] as $name) {
    define($name, hash('sha256', 'loopback only ' . $name));
}
$table_prefix = 'wp_';
$folder = strncmp($_SERVER['REQUEST_URI'] ?? '/', '/blog/', 6) === 0 ? '/blog' : '';
define('WP_HOME', 'http://' . ($_SERVER['HTTP_HOST'] ?? '127.0.0.1') . $folder);
define('WP_SITEURL', WP_HOME);
$tuning = json_decode(file_get_contents(dirname(__DIR__) . '/tuning.json'), true);
define('AUTOSAVE_INTERVAL', $tuning['autosave_s']);
define('AUTOMATIC_UPDATER_DISABLED', true); define('WP_HTTP_BLOCK_EXTERNAL', true); define('DISABLE_WP_CRON', true);
define('WP_DEBUG', false);
if (!defined('ABSPATH')) { define('ABSPATH', __DIR__ . '/'); }
require_once ABSPATH . 'wp-settings.php';
"""

_INSTALL = """<?php
define('WP_INSTALLING', true);
require __DIR__ . '/www/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
add_filter('pre_wp_mail', '__return_true');
wp_install('Loopback Gazette', 'admin', 'admin@example.test', false, '', $argv[1]);
foreach (['writer' => 'author', 'other' => 'author', 'contributor' => 'contributor'] as $login => $role) {
    wp_insert_user(['user_login' => $login, 'user_pass' => $argv[1], 'user_email' => "$login@example.test",
                    'role' => $role, 'display_name' => ucfirst($login) . ' in Public']);
}
echo $GLOBALS['wp_version'];
"""


class CannotProvide(Exception):
    """WordPress cannot be had on this machine; the message names the one command that changes it."""


@dataclass(frozen=True)
class Post:
    """One row of the posts table."""

    id: int
    status: str
    title: str
    content: str
    author: str


class WordPressSite:
    """A running WordPress. `root_url` and `folder_url` are its two addresses."""

    def __init__(self, folder: Path, port: int, version: str) -> None:
        self.folder = folder
        self.version = version
        self.root_url = f"http://127.0.0.1:{port}"
        self.folder_url = f"{self.root_url}/blog"

    def sql(self, statement: str) -> list[list[str]]:
        """Run a statement in the database; the rows as strings, with backslash escapes for what is not printable."""
        command = [*_client("mariadb", self.folder), "--batch", "--skip-column-names", "wp", "-e", statement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise ValueError(f"{done.stderr.strip()} in: {statement}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def posts(self, where: str = "post_status <> 'auto-draft'") -> list[Post]:
        """Ground truth: the posts (revisions and pages left out), oldest first."""
        # JSON keeps line breaks, tabs and backslashes apart from the client's own escapes.
        rows = self.sql(
            "SELECT HEX(JSON_ARRAY(p.ID, post_status, post_title, post_content, user_login)) FROM wp_posts p"
            f" LEFT JOIN wp_users u ON u.ID = post_author WHERE post_type = 'post' AND {where} ORDER BY p.ID"
        )
        return [Post(*json.loads(bytes.fromhex(row[0]))) for row in rows]

    def published(self) -> list[Post]:
        return self.posts("post_status = 'publish'")

    def add_post(
        self, title: str, content: str, *, author: str = WRITER, status: str = "publish", password: str = ""
    ) -> int:
        """Store a post past WordPress, as another program of the account might have; its id."""
        title, content = (f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)" for text in (title, content))
        rows = self.sql(
            "INSERT INTO wp_posts (post_author, post_date, post_date_gmt, post_modified, post_modified_gmt, post_title,"
            " post_content, post_status, post_password, post_type, post_excerpt, to_ping, pinged,"
            " post_content_filtered)"
            f" SELECT ID, NOW(), UTC_TIMESTAMP(), NOW(), UTC_TIMESTAMP(), {title}, {content}, '{status}', '{password}',"
            f" 'post', '', '', '', '' FROM wp_users WHERE user_login = '{author}'; SELECT LAST_INSERT_ID()"
        )
        return int(rows[0][0])

    @contextlib.contextmanager
    def under_maintenance(self) -> Iterator[None]:
        """WordPress answers everything with 503, as it does while it is being updated."""
        mark = self.folder / "www" / ".maintenance"
        mark.write_text("<?php $upgrading = time();")
        try:
            yield
        finally:
            mark.unlink()

    def reset(self) -> None:
        """No posts, no preferences of users, plain links, autosave once a minute: as after the installation."""
        self.sql(
            "DELETE FROM wp_posts WHERE post_type IN ('post', 'revision'); DELETE FROM wp_postmeta;"
            "DELETE FROM wp_usermeta WHERE meta_key IN ('wp_persisted_preferences', 'session_tokens')"
        )
        self.pretty_links(False)
        self.tune(autosave_s=60)

    def pretty_links(self, pretty: bool) -> None:
        structure = "/%postname%/" if pretty else ""
        self.sql(
            f"UPDATE wp_options SET option_value = '{structure}' WHERE option_name = 'permalink_structure';"
            "DELETE FROM wp_options WHERE option_name = 'rewrite_rules'"
        )

    def tune(self, *, autosave_s: int) -> None:
        """Seconds between the editor's own saves; WordPress reads it at each request."""
        (self.folder / "tuning.json").write_text(json.dumps({"autosave_s": autosave_s}))


@contextlib.contextmanager
def running_wordpress() -> Iterator[WordPressSite]:
    """Install WordPress into a new folder, run it, and end and remove it all. Raises `CannotProvide`."""
    provide_packages()
    # Not pytest's folder: the path of a socket may not have more than 107 bytes.
    with tempfile.TemporaryDirectory(prefix="interlock-wp-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _lay_out(folder)
        with _kept(folder, "db", _database_command(folder)):
            _until(lambda: _succeeds([*_client("mariadb-admin", folder), "ping"]))
            version = _install(folder)
            with _server(folder) as port:
                yield WordPressSite(folder, port, version)


def provide_packages() -> None:
    """See to the Debian packages: nothing to do, or apt where it may. Raises `CannotProvide`."""
    if _there():
        return
    commands = [["apt-get", "update"], *([*_APT, *names] for names in PACKAGES)]
    by_hand = " && ".join("sudo " + " ".join(command) for command in commands)
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        raise CannotProvide(f"A live test needs PHP, MariaDB and Debian's WordPress package: {by_hand}")
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    # RUNLEVEL=1: the packages' own scripts then start no service.
    environment = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"]
    deadline = time.monotonic() + APT_S
    for command in commands:
        done = subprocess.run(
            [*prefix, *environment, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=max(1.0, deadline - time.monotonic()),
            check=False,
        )
        if done.returncode != 0:
            raise CannotProvide(f"{' '.join(command)} failed:\n{done.stdout[-800:]}\nRun by hand: {by_hand}")
    if not _there():
        raise CannotProvide(f"apt ended well and WordPress is still not there. Run by hand: {by_hand}")


_APT = ["apt-get", "install", "-y", "--no-install-recommends"]


def _there() -> bool:
    return (SOURCE / "wp-load.php").exists() and all(
        shutil.which(name) for name in ("php", "mariadbd", "mariadb", "mariadb-admin", "mariadb-install-db")
    )


def _lay_out(folder: Path) -> None:
    site = folder / "www"
    # Debian's package links into /etc and /var; the copy holds files only, and its own settings.
    shutil.copytree(SOURCE, site, symlinks=False, ignore=shutil.ignore_patterns("wp-config.php"))
    (site / "wp-content" / "uploads").mkdir(exist_ok=True)
    (site / "wp-config.php").write_text(_CONFIG)
    (site / "blog").symlink_to(".")
    (folder / "install.php").write_text(_INSTALL)
    (folder / "tuning.json").write_text(json.dumps({"autosave_s": 60}))
    options = (f"--datadir={folder / 'db'}", "--auth-root-authentication-method=normal", "--skip-test-db")
    _run(folder, ["mariadb-install-db", "--no-defaults", *_system_user(), *options])


def _client(program: str, folder: Path) -> list[str]:
    """A client on the private socket. The database's root has no password; the folder is its owner's alone."""
    return [program, "--no-defaults", "--user=root", "--socket", str(folder / "db.sock")]


def _system_user() -> list[str]:
    # MariaDB refuses to run as root unless it is told to.
    return ["--user=root"] if os.geteuid() == 0 else []


def _database_command(folder: Path) -> list[str]:
    return [
        "mariadbd",
        "--no-defaults",
        *_system_user(),
        f"--datadir={folder / 'db'}",
        f"--socket={folder / 'db.sock'}",
        f"--pid-file={folder / 'db.pid'}",
        "--skip-networking",
        "--innodb-buffer-pool-size=64M",
        "--innodb-flush-log-at-trx-commit=2",  # power loss is not among the faults of these tests
        "--performance-schema=OFF",
    ]


def _install(folder: Path) -> str:
    _run(folder, [*_client("mariadb", folder), "-e", "CREATE DATABASE wp CHARACTER SET utf8mb4"])
    return _run(folder, ["php", "-d", "sendmail_path=/bin/true", str(folder / "install.php"), PASSWORD]).strip()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[int]:
    for attempt in range(5):
        port = _free_port()
        command = ["env", "PHP_CLI_SERVER_WORKERS=4", "php", "-d", "sendmail_path=/bin/true"]
        command += ["-d", "opcache.enable_cli=1", "-S", f"127.0.0.1:{port}", "-t", str(folder / "www")]
        with _kept(folder, f"web{attempt}", command) as keeper:
            _until(partial(_ended_or_answers, keeper, port))
            if keeper.poll() is None:
                yield port
                return
        # Somebody took the port between our look and PHP's.
    raise CannotProvide(f"PHP's server did not start: {(folder / 'web4.log').read_text()[-400:]}")


@contextlib.contextmanager
def _kept(folder: Path, name: str, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    keeper = [sys.executable, str(Path(__file__).with_name("keeper.py")), *command]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=20)


def _run(folder: Path, command: Sequence[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_S, check=False, cwd=folder
    )
    if done.returncode != 0:
        raise CannotProvide(f"{command[0]} failed: {done.stderr[-800:] or done.stdout[-800:]}")
    return done.stdout


def _until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not there():
        if time.monotonic() > deadline:
            raise CannotProvide(f"the server did not start within {START_S:.0f} s")
        time.sleep(0.05)  # neither server tells when it is ready


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


def _ended_or_answers(keeper: subprocess.Popen[bytes], port: int) -> bool:
    if keeper.poll() is not None:
        return True
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/wp-login.php", timeout=20) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
