"""Reads, writes and follows settings in Python, without NephosKit.

Usage: settings.py CONNECTION ACCOUNT get KEY
       settings.py CONNECTION ACCOUNT set KEY TEXT
       settings.py CONNECTION ACCOUNT follow

NEPHOS_PASSWORD is the account's password. Each run signs in a device, and signs it out at its end.
"""

import os
import sys

import zmq

import client
from nephos import identity_pb2, keyvalue_pb2, notifications_pb2, values_pb2


class Settings:
    """The settings of the account's default app. A setting is a key with a value."""

    def __init__(self, device):
        self.device = device
        self.service = device.door("keyvalue")

    def set(self, key, text):
        write = keyvalue_pb2.KeyWrite(
            key=key, value=values_pb2.PropertyValue(string=text), timestamp=self.device.timestamp())
        push = keyvalue_pb2.PushKeys(store_id=self.device.store_id, writes=[write])
        self.service.call(push, keyvalue_pb2.PushKeysReply, self.device.token)

    def get(self, key):
        """The text of a setting; None if there is none."""
        items, _, _ = client.read(self.service, self.device.store_id, self.device.token)
        values = {item.key: item.value.string for item in items.values() if item.HasField("value")}
        return values.get(key)

    def follow(self):
        """Each setting that another device changes, as key and text, until the access token expires. Text None: deleted."""
        notifications = self.device.door("notifications", subscriptions=True)
        scope = notifications_pb2.SubscribedScope(service="keyvalue", scope=self.device.store_id)
        subscribe = notifications_pb2.Subscribe(scopes=[scope])
        notifications.call(subscribe, notifications_pb2.SubscribeReply, self.device.token)
        print("Waiting for changes", flush=True)
        while True:
            try:
                notification = notifications.next_notification()
            except TimeoutError:
                continue
            for change in notification.changes:
                item = keyvalue_pb2.KeyValueItem()
                item.ParseFromString(change.body)
                yield item.key, item.value.string if item.HasField("value") else None


def run(settings, command, arguments):
    if command == "set":
        settings.set(*arguments)
    elif command == "get":
        print(settings.get(*arguments) or "There is no such setting.")
    elif command == "follow":
        for key, text in settings.follow():
            print(f"{key} was deleted" if text is None else f"{key} = {text}", flush=True)
    else:
        sys.exit(__doc__)


def main(connection, account, command, *arguments):
    password = os.environ["NEPHOS_PASSWORD"]
    device = client.Device(zmq.Context(), connection, account, password, "settings.py")
    try:
        run(Settings(device), command, arguments)
    except KeyboardInterrupt:
        pass
    finally:
        device.identity.call(identity_pb2.SignOut(), identity_pb2.SignOutReply, device.token)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except client.CallFailed as error:
        sys.exit(error.failure.message)
