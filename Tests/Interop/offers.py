"""What a service has lost with a copy, offered again from Python, written from docs/protocol/documents.md ("Offering again") alone.

Usage: offers.py CONNECTION ACCOUNT PASSWORD

Stops the deployment of NEPHOS_DEPLOYMENT twice, and brings back what documents had stored the first time. Exits 0 when
what was lost came back as it was, of those who had made it.
"""

import os
import shutil
import sys
import tempfile

import zmq

from client import Device, check, expect, nephos
from documents import Container
from nephos import changes_pb2, documents_pb2, errors_pb2


def change(item, offered=False, **kind):
    return documents_pb2.DocumentChange(item=item, offered=offered, **kind)


def made_again(item, kind, **others):
    """The creation of an item as it was."""
    create = documents_pb2.CreateItem(
        kind=kind, parent=item.parent, name=item.name, place_version=item.place_version, made=item.made,
        placed=item.placed, attributed=item.attributed,
        clash=documents_pb2.NAME_CLASH_RENAME, **others)
    if item.HasField("attributes"):
        create.attributes.CopyFrom(item.attributes)
    return create


def lose(deployment, folder, body):
    """Does something that the service will know nothing of, and has said all the same."""
    data = os.path.join(deployment, "data", "documents")
    copy = os.path.join(folder, "documents")
    nephos("down")
    shutil.copytree(data, copy)
    nephos("up")
    lost = body()
    nephos("down")
    shutil.rmtree(data)
    shutil.move(copy, data)
    nephos("up")
    return lost


def main(connection, account, password):
    deployment = os.environ.get("NEPHOS_DEPLOYMENT")
    if not deployment or not shutil.which("nephos"):
        print("--  nothing is offered again: NEPHOS_DEPLOYMENT is not set, or nephos is not in PATH")
        return
    context = zmq.Context()

    def device(name):
        return Container(Device(context, connection, account, password, name))
    top = device("python-before").make_folder(b"offers " + os.urandom(4).hex().encode())

    def body():
        one, two = device("python-maker"), device("python-writer")
        one.folder = two.folder = top
        folder = one.make_folder(b"lost folder")
        one.put(b"lost file", b"first")
        digits, item = two.find(b"lost file")
        second = documents_pb2.DocumentContent(
            version=os.urandom(16), base=item.content.version, length=6, inline=b"second")
        two.apply([change(bytes.fromhex(digits), replace=documents_pb2.ReplaceContent(content=second))])
        two.apply([change(bytes.fromhex(digits), attributes=documents_pb2.SetAttributes(executable=True))])
        items = dict(two.list()[0])
        return items, digits, folder.hex(), two.head, (one.device.device_id, two.device.device_id)
    with tempfile.TemporaryDirectory() as place:
        before, file, folder, head, (maker, writer) = lose(deployment, place, body)
    other = device("python-offers")
    other.folder = top
    # Whoever shows what it was told proves that the database is an old copy.
    expect(errors_pb2.ERROR_CODE_CHANGE_TOKEN_EXPIRED, "a token that was lost has expired",
           lambda: other.call(changes_pb2.ReadChanges(scope=other.id, after=head)))
    check(other.list()[1].token.epoch > head.epoch, "and has begun another epoch")
    check(not {file, folder} & set(other.list()[0]), "the service has lost a file and a folder")

    def item_of(encoded):
        item = documents_pb2.DocumentItem()
        item.ParseFromString(encoded)
        return item
    lost = {digits: item_of(before[digits]) for digits in (file, folder)}
    check(
        (lost[file].made.device_id, lost[file].content.device_id) == (maker, writer) and lost[file].content.seal != 0,
        "each has said who made what, with a seal")
    other.apply([change(
        bytes.fromhex(folder), True, create=made_again(lost[folder], documents_pb2.ITEM_KIND_FOLDER))])
    create = made_again(lost[file], documents_pb2.ITEM_KIND_FILE, content=lost[file].content)
    other.apply([change(bytes.fromhex(file), True, create=create)])
    after, _ = other.list()
    check((after[file], after[folder]) == (before[file], before[folder]), "both come back to the byte, of who made them")

    # The seal of one thing is no other's.
    forged = documents_pb2.DocumentContent()
    forged.CopyFrom(lost[file].content)
    forged.version, forged.base, forged.inline = os.urandom(16), lost[file].content.version, b"forged"
    other.apply([change(bytes.fromhex(file), True, replace=documents_pb2.ReplaceContent(content=forged))])
    content = other.find(b"lost file")[1].content
    check(
        (content.inline, content.device_id) == (b"forged", other.device.device_id),
        "what has another's seal is of the device that sends it")


if __name__ == "__main__":
    main(*sys.argv[1:4])
