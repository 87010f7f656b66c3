"""The one owner of git calls: a clean environment, no prompts, no hooks, a time limit, bytes in and out.

Processes are started with posix_spawn and talk through memory files, so a call costs what git costs
(1.2 ms for the smallest) and neither a large input nor a hung disk can block us.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from autoresearch import files
from autoresearch.errors import AutoresearchError, Refused, TryAgain
from autoresearch.git.spawn import Done, Running, name

TIMEOUT_S = 120.0
# Filling a tree of a large repository from a slow disk took 27 s for eight at once; a lock waits longer than that.
SLOW_S = 1800.0
LOCK_WAIT_S = 600.0
REF_WAIT_S = 10.0
ZEROS = "0" * 40

# Everything else that starts with GIT_ steers git (what `git rev-parse --local-env-vars` lists, traces, prompts,
# dates): called from a hook, an inherited GIT_DIR would send our calls to another repository.
KEPT_VARIABLES = frozenset(
    {
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    }
)
FIXED_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
    "LANGUAGE": "",
}
# Here git drops what the system said; a full disk is nearly always why.
WITHOUT_REASON = re.compile(r"(could not|couldn't|unable to|failed to|cannot) (write|close|flush|create temp)", re.I)
NO_HOOKS = ("core.hooksPath", os.devnull)
# Settings of ours that win over the user's files. Each of the index ones, set otherwise, made a changed tree look
# clean; the ref timeouts let many writers queue; git by itself syncs neither loose objects nor refs to the disk; our
# messages are UTF-8, and what a trailer records is read again.
SETTINGS = (
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.ignoreStat", "false"),
    ("core.safecrlf", "false"),
    ("core.quotePath", "false"),
    ("core.fsync", "committed,loose-object,reference"),
    ("core.filesRefLockTimeout", f"{REF_WAIT_S * 1000:.0f}"),
    ("core.packedRefsTimeout", "10000"),
    ("submodule.recurse", "false"),
    ("status.renames", "false"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
    ("log.showSignature", "false"),
    ("trailer.separators", ":"),
)


def environment(drop: Collection[str] = (), base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of our git calls: `base` (default: ours) without steering variables and secrets.

    Args:
        drop: names of variables that hold secrets; git and its hooks never see them.
        base: the environment to start from.
    """
    source = os.environ if base is None else base
    kept = {
        key: value
        for key, value in source.items()
        if key not in drop and (not key.startswith("GIT_") or key in KEPT_VARIABLES)
    }
    kept.update(FIXED_VARIABLES)
    return kept


def with_settings(env: dict[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return `env` with git settings of the command scope, which win over every file and reach child processes."""
    env = dict(env, GIT_CONFIG_COUNT=str(len(settings)))
    for number, (key, value) in enumerate(settings):
        env[f"GIT_CONFIG_KEY_{number}"], env[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return env


class Git:
    """git in one directory. `count` is the number of processes started (shared by all that `at` returned).

    Args:
        repo: the directory that git is started in (`git -C`).
        drop_env_keys: names of variables that hold secrets.
        base: the environment to start from; default: ours.
    """

    def __init__(self, repo: str, drop_env_keys: Collection[str] = (), base: Mapping[str, str] | None = None) -> None:
        self.repo = repo
        plain = environment(drop_env_keys, base)
        self._env = with_settings(plain, (NO_HOOKS, *SETTINGS))
        self._hooked = with_settings(plain, SETTINGS)
        self._count = [0]
        self._common: list[str] = []

    @property
    def count(self) -> int:
        """How many git processes were started so far."""
        return self._count[0]

    @property
    def common(self) -> str:
        """The git directory that all worktrees of the repository share; a git call only where it is not plain."""
        if not self._common:
            plain = os.path.join(self.repo, ".git")
            if os.path.isdir(plain) and os.path.isdir(os.path.join(plain, "objects")):
                self._common.append(os.path.realpath(plain))
            else:
                out = self.run("rev-parse", "--path-format=absolute", "--git-common-dir")
                self._common.append(os.fsdecode(out)[:-1])
        return self._common[0]

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment that git is called with."""
        return self._env

    def at(self, directory: str) -> Git:
        """Return the same git in another directory of the repository, a worktree or a submodule of it."""
        other = object.__new__(Git)
        other.__dict__.update(self.__dict__, repo=directory)
        return other

    def start(
        self,
        *args: str,
        input: bytes | None = None,
        timeout: float = TIMEOUT_S,
        env: Mapping[str, str] | None = None,
        hooks: bool = False,
    ) -> Running:
        """Start `git ARGS` and return at once; arguments as in `run`."""
        base = self._hooked if hooks else self._env
        self._count[0] += 1
        return Running(("git", "-C", self.repo, *args), {**base, **env} if env else base, input, timeout)

    def call(
        self,
        *args: str,
        input: bytes | None = None,
        timeout: float = TIMEOUT_S,
        env: Mapping[str, str] | None = None,
        hooks: bool = False,
    ) -> Done:
        """Run `git ARGS` and return code, stdout and stderr, whatever the code is."""
        return self.start(*args, input=input, timeout=timeout, env=env, hooks=hooks).finish()

    def run(
        self,
        *args: str,
        input: bytes | None = None,
        check: bool = True,
        timeout: float = TIMEOUT_S,
        env: Mapping[str, str] | None = None,
        hooks: bool = False,
    ) -> bytes:
        """Run `git ARGS` and return its stdout.

        Args:
            args: subcommand, options and operands; names from users follow `--` or `--end-of-options`.
            input: its stdin; None is /dev/null.
            check: raise when git fails, with git's own last line; else the output counts whatever the code.
            timeout: seconds until the call is ended.
            env: variables to add (a private GIT_INDEX_FILE).
            hooks: let the repository's own hooks run (for the one commit that is the user's).

        Raises:
            Refused, TryAgain, AutoresearchError: see `failure`.
        """
        done = self.start(*args, input=input, timeout=timeout, env=env, hooks=hooks).finish()
        if check and done.code:
            raise failure(("git", *args), done)
        return done.out

    def commit(self, name: str) -> str:
        """Return the full hash of the commit that `name` (a hash, branch, tag, `HEAD~1`) means.

        Raises:
            Refused: there is no such commit.
        """
        # --end-of-options: a name such as `--output=FILE` would be taken as an option and write that file.
        done = self.call("rev-parse", "--verify", "-q", "--end-of-options", f"{name}^{{commit}}")
        if done.code:
            if done.err.strip() and b"Needed a single revision" not in done.err:
                raise failure(("git", "rev-parse"), done)
            raise Refused("git", f"{name!r} is not a commit of {self.repo}", "see: git log --oneline --all")
        return done.out.decode("ascii").strip()


def reason(err: bytes) -> str:
    """Return the line of git's stderr that says why: one printable line without credentials, at most 300 characters."""
    lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("hint:", "warning:"))] or lines or ["no message"]
    chosen = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1])
    chosen = re.sub(r"^(fatal|error): ", "", chosen)
    chosen = re.sub(r"://[^@/\s]*@", "://", chosen)
    return "".join(c if c.isprintable() else " " for c in chosen)[:300]


def failure(argv: tuple[str, ...], done: Done) -> AutoresearchError:
    """Return the error that a failed call means, by git's own message (we run it in English).

    Refused: what the user must put right first. TryAgain: a lock. AutoresearchError: the rest.
    """
    text, why, what = done.err.decode("utf-8", "replace"), reason(done.err), name(argv)
    if done.code < 0:
        return AutoresearchError(what, f"ended by signal {-done.code}", "see the machine's log (out of memory?)")
    if "dubious ownership" in text:
        return foreign_owner(text)
    if "not a git repository" in text:
        return Refused(what, why, "call it inside a repository, or name one with REPO=/path")
    if "File exists" in text and ".lock" in text:
        return TryAgain(
            what,
            "another git process holds " + (re.search(r"'([^']*\.lock)'", text) or [why, why])[1],
            "wait for it; if no git runs there any more, remove that file yourself",
        )
    if "smudge filter" in text:
        return Refused(what, why, "fetch what the filter needs (Git LFS: git lfs pull), or install its program")
    if "No space left" in text or "Disk quota" in text:
        return Refused(what, why, "free disk space, then call again")
    if "ermission denied" in text or "insufficient permission" in text or "Read-only file system" in text:
        return Refused(what, why, "call it as the owner of the repository")
    if WITHOUT_REASON.search(text):
        return Refused(what, why, "look whether its disk is full (df -h, df -i), free space, then call again")
    if "unable to auto-detect" in text or "empty ident" in text or "no email was given" in text:
        return no_identity(why)
    return AutoresearchError(what, why, "")


def foreign_owner(text: str) -> Refused:
    """Return the refusal for a repository of another user, naming that user where git named the path."""
    found = re.search(r"repository at '([^\n]*)'", text)
    path = found[1] if found else ""
    owner = owner_name(path) if path else ""
    who = f"sudo -u {owner} ..." if owner else "the owner's account"
    return Refused("the repository", f"{path or 'it'} belongs to another user ({owner or 'unknown'})", f"use {who}")


def no_identity(why: str) -> Refused:
    """Return the refusal for a missing committer identity."""
    return Refused(
        "git identity",
        f"git does not know who commits ({why})",
        "git config --global user.name 'Your Name' && git config --global user.email you@example.org",
    )


def owner_name(path: str) -> str:
    """Return the user name (or number) of the owner of `path`, "" when it cannot be looked at."""
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return ""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def repository_lock(common: str) -> AbstractContextManager[int]:
    """Hold the lock of one repository around worktree changes and notes (both lose work without it).

    Args:
        common: the repository's common git directory.
    """
    return files.locked(os.path.join(common, "autoresearch.lock"), wait_s=LOCK_WAIT_S, inherited=True)


def write_own_ref(git: Git, ref: str, *args: str, input: bytes | None = None, started: Running | None = None) -> Done:
    """Run a git call that writes a ref which only autoresearch writes, and return what it said.

    A git that was killed, or a power cut, leaves the ref's lock file, and no later call would ever get past it. The
    caller holds the lock of ours that keeps other writers away; so a lock file that was there all the time that git
    waited for it is nobody's, and is removed. `started` is that call where it runs already.
    """
    done = started.finish() if started else git.call(*args, input=input)
    if not done.code or b".lock': File exists" not in done.err:
        return done
    lock = os.path.join(git.common, f"{ref}.lock")
    try:
        if time.time() - os.stat(lock).st_mtime < REF_WAIT_S - 1:
            return done
        os.unlink(lock)
    except FileNotFoundError:
        pass
    return git.call(*args, input=input)
