"""Files are whole or not there, and nothing of anybody else's is touched on the way."""

import os
import stat

import pytest

from aicau.core.errors import InputError
from aicau.core.files import write_whole


def put(words):
    return lambda path: path.write_text(words)


def test_two_writers_of_one_name_do_not_meet(tmp_path):
    path = tmp_path / "t.csv"

    def slow(partial):
        partial.write_text("first, ")
        write_whole(path, put("the other's"))
        assert path.read_text() == "the other's"
        with partial.open("a") as file:
            file.write("last")

    write_whole(path, slow)
    assert path.read_text() == "first, last"
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_users_files_and_what_links_point_to_stay(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".t.partial.csv").symlink_to(tmp_path / "mine")  # the temporary name of an earlier version
    (tmp_path / "t.csv").symlink_to(tmp_path / "mine")
    write_whole(tmp_path / "t.csv", put("new"))
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / ".t.partial.csv").is_symlink()
    assert (tmp_path / "t.csv").read_text() == "new"
    assert not (tmp_path / "t.csv").is_symlink()


@pytest.mark.parametrize(
    ("mode", "umask", "expected"), [(0o600, 0, 0o600), (0o664, 0o077, 0o664), (None, 0o027, 0o640)]
)
def test_permissions_are_kept(tmp_path, mode, umask, expected):
    path = tmp_path / "t.csv"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    seen = []
    before = os.umask(umask)
    try:
        write_whole(path, lambda partial: seen.append(stat.S_IMODE(partial.stat().st_mode)))
    finally:
        os.umask(before)
    assert seen == [expected]
    assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_failed_write_leaves_everything_as_it_was(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("old")

    def half(partial):
        partial.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_whole(path, half)
    assert (os.listdir(tmp_path), path.read_text()) == (["t.csv"], "old")


@pytest.mark.parametrize("links", [True, False])
def test_without_force_nothing_is_replaced(tmp_path, monkeypatch, links):
    path = tmp_path / "t.csv"
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no hard links here")))

    def overtaken(partial):
        partial.write_text("ours")
        path.write_text("theirs")

    with pytest.raises(InputError, match="exists already; choose another name, or replace it with --force"):
        write_whole(path, overtaken, force=False)
    assert (os.listdir(tmp_path), path.read_text()) == (["t.csv"], "theirs")
    path.unlink()
    write_whole(path, put("ours"), force=False)
    assert (os.listdir(tmp_path), path.read_text()) == (["t.csv"], "ours")


def test_a_folder_a_pipe_and_a_name_that_is_too_long_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name, sentence in (("pipe.csv", "not a file"), ("folder.csv", "not a file"), ("n" * 300 + ".csv", "too long")):
        with pytest.raises(InputError, match=sentence):
            write_whole(tmp_path / name, put("x"))
    assert sorted(os.listdir(tmp_path)) == ["folder.csv", "pipe.csv"]
