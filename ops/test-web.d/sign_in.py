"""Sign-in and sign-out."""

import urllib.error
import urllib.request


from browser import NARROW, WIDE, Keyboard, Mouse
from cloud import password


def run(stage):
    check, cloud = stage.report.check, stage.cloud
    cloud.create_account("anna")
    stage.desk = cloud.device("desk", "anna")
    browser = stage.browser("anna")
    mouse, keyboard = Mouse(browser), Keyboard(browser)

    with check("The sign-in has the focus on the account's field"):
        browser.driver.get(f"{cloud.address}/#/devices")
        browser.is_signed_out()
        browser.wait(lambda: browser.js("return document.activeElement === testing.field('Account')"), "the field has the focus")
    with check("A wrong password is refused with a sentence, and its field gets the focus", allows="sign-in.*40[13]"):
        browser.sign_in("anna", "wrong horse")
        alert = browser.element("document.querySelector('[role=alert]')")
        assert alert.text.endswith("."), alert.text
        stage.report.figure(alert.text)
        browser.wait(lambda: browser.js("return document.activeElement === testing.field('Password')"), "the field has the focus")
    with check("An account that does not exist is refused with the same sentence", allows="sign-in.*40[13]"):
        former = alert.text
        browser.sign_in("nobody", "wrong horse")
        browser.wait(lambda: browser.button("Sign in").is_enabled(), "the answer")
        assert browser.js("return document.querySelector('[role=alert]').innerText") == former
    with check("After the sign-in the page of the address is shown"):
        browser.sign_in("anna")
        browser.is_signed_in()
        browser.heading("Devices")
        assert browser.driver.current_url.endswith("#/devices"), browser.driver.current_url
        assert "expiry" not in browser.driver.get_cookie("nephos"), "the cookie outlives the browser"
    with check("The cookie cannot be read by scripts, and is not sent with other sites' requests"):
        cookie = browser.driver.get_cookie("nephos")
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
        assert browser.js("return document.cookie") == ""
    with check("A reload keeps the sign-in and the page"):
        browser.reload()
        browser.heading("Devices")
    with check("Signing out ends all tabs and the cookie's use"):
        first = browser.driver.current_window_handle
        browser.driver.switch_to.new_window("tab")
        browser.prepare_tab()
        second = browser.driver.current_window_handle
        browser.driver.get(f"{cloud.address}/#/storage")
        browser.is_signed_in()
        mouse.press(browser.button("Sign out"))
        browser.is_signed_out()
        browser.driver.switch_to.window(first)
        browser.is_signed_out(seconds=3)
        assert status(cloud, "session", cookie["value"]) == 401, "the former cookie is still of use"
        browser.driver.switch_to.window(second)
        browser.driver.close()
        browser.driver.switch_to.window(first)

    with check("By keyboard, on a narrow dark page: sign in, menu, sign out"):
        browser.resize(NARROW)
        browser.theme(True)
        browser.go("files")
        browser.sign_in("anna", hand=keyboard)
        browser.is_signed_in()
        keyboard.press(browser.button("Menu"))
        keyboard.press(browser.button("Key-values"))
        browser.heading("Key-values")
        keyboard.press(browser.button("Menu"))
        keyboard.press(browser.button("Sign out"))
        browser.is_signed_out()
        browser.resize(WIDE)
        browser.theme(False)
    with check("Without “Keep me signed in” the sign-in ends with the browser"):
        browser.sign_in("anna")
        browser.is_signed_in()
        browser.quit()
        browser.open()
        browser.go("files")
        browser.is_signed_out()
    with check("With “Keep me signed in” it outlives the browser"):
        browser.sign_in("anna", keep=True, hand=Mouse(browser))
        browser.is_signed_in()
        assert "expiry" in browser.driver.get_cookie("nephos"), "the cookie ends with the browser"
        browser.quit()
        browser.open()
        browser.go("files")
        browser.is_signed_in()
    stage.anna = browser


def status(cloud, name, cookie):
    """Of a call without a browser."""
    request = urllib.request.Request(
        f"{cloud.address}/api/{name}", data=b"{}", method="POST",
        headers={"Content-Type": "application/json", "X-Nephos": "1", "Cookie": f"nephos={cookie}"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
