"""The few checks of --quick."""

from browser import Mouse
from files import local_file


def run(stage):
    check, cloud = stage.report.check, stage.cloud
    cloud.create_account("anna")
    desk = cloud.device("desk", "anna")
    browser = stage.browser("quick")
    with check("A person signs in"):
        browser.go()
        browser.is_signed_out()
        browser.sign_in("anna")
        browser.is_signed_in()
    with check("A file is uploaded, and another device has its bytes"):
        browser.files()
        browser.choose_files(local_file(stage, "letter.txt", b"Dear Anna"))
        browser.row("letter.txt")
        assert desk.cat("letter.txt") == b"Dear Anna"
    with check("Another device's file appears without a reload"):
        desk.put("from desk.txt", "hello")
        browser.row("from desk.txt")
    with check("A person signs out"):
        Mouse(browser).press(browser.button("Sign out"))
        browser.is_signed_out()
        assert browser.call("session")["status"] == 401
    browser.problems()
