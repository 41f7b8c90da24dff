#!/bin/sh
# Makes the virtual environment and installs into it what requirements.lock pins, nothing else.
# Usage: tools/setup.sh VENV [PYTHON]. Needs a Python of 3.11 or later; on Debian and Ubuntu it fetches the
# missing part of the standard library (venv) itself where it may, else it names the one command to run.
set -eu

venv=$1
wanted=${2:-}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "$wanted" ]; then
        new_enough "$wanted" && { echo "$wanted"; return; }
        echo "$wanted is not a Python of 3.11 or later." >&2
        return 1
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    echo "Interlock needs Python 3.11 or later. Name one: make PYTHON=/path/to/python3.12" >&2
    return 1
}

# `venv` without `ensurepip` makes an environment without pip: Debian ships the two in a package of its own.
complete() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

# Installs one Debian package where it may; says nothing about whether that helped.
by_apt() {
    package=$1
    if command -v apt-get >/dev/null; then
        if [ "$(id -u)" = 0 ]; then
            as_root=
        elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            as_root="sudo -n"
        else
            as_root=none
        fi
        if [ "$as_root" != none ]; then
            echo "Installing $package by apt."
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update || true
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install "$package" >/dev/null || true
        fi
    fi
}

add_venv() {
    by_apt "python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    complete "$1" && return
    echo "Python's venv module is missing. Run this, then make again:" >&2
    echo "  sudo apt-get install -y $package" >&2
    return 1
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    complete "$python" || add_venv "$python"
    echo "Making the virtual environment $venv."
    "$python" -m venv --clear "$venv"
fi

# Twice quiet: errors are shown, the warnings of a machine's own pip settings are not.
pip() {
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input "$@"
}

echo "Installing the packages that requirements.lock pins."
pip --require-hashes -r requirements.lock
# Built by the pinned hatchling: nothing is fetched outside the lock.
pip --no-deps --no-build-isolation --editable .

# The node of Playwright's driver is linked against a library that a small Debian does not have.
driver_runs() {
    "$venv/bin/python" -m playwright --version >/dev/null 2>&1
}

if ! driver_runs; then
    by_apt libatomic1
    if ! driver_runs; then
        echo "Playwright's driver does not start on this machine; it says:" >&2
        "$venv/bin/python" -m playwright --version >&2 || true
        echo "Run this, then make again:" >&2
        echo "  sudo apt-get install -y libatomic1" >&2
        exit 1
    fi
fi
