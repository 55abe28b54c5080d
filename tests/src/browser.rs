//! Chromium without a window, driven by chromedriver (<https://www.w3.org/TR/webdriver2/>).
//! The driver opens a page, runs scripts in the page and presses keys.
//!
//! The crates for WebDriver bring some sixty others, ICU twice. The tests need only a few requests
//! of the protocol.

use crate::child::Child;
use crate::http;
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Command;

/// Line by which the driver says that it serves.
const READY: &str = "started successfully on port ";

/// A browser with one page. Dropping this value ends the browser.
pub struct Browser {
    address: SocketAddr,
    session: String,
    _driver: Child,
}

/// Keys without a character.
pub mod keys {
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// Arrow left.
    pub const LEFT: &str = "\u{e012}";
    /// Arrow up.
    pub const UP: &str = "\u{e013}";
}

impl Browser {
    /// Starts the browser.
    pub fn start() -> Result<Browser> {
        let mut command = Command::new("chromedriver");
        let mut driver = Child::start("chromedriver", command.arg("--port=0"))
            .context("run chromedriver (apt-get install chromium chromium-driver)")?;
        let port = loop {
            let line = driver.line()?;
            if let Some((_, port)) = line.split_once(READY) {
                break port.trim_end_matches('.').parse::<u16>().context("the driver's port")?;
            }
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let options = json!({ "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800",
        ] });
        // The logs record which URLs the page loads, and the complaints of scripts.
        let logs = json!({ "performance": "ALL", "browser": "ALL" });
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": logs });
        let made = request(
            address,
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": wanted } }),
        )?;
        let session = made["sessionId"].as_str().context("no session")?.to_owned();
        Ok(Browser { address, session, _driver: driver })
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        request(self.address, method, &format!("/session/{}{path}", self.session), body)
    }

    /// Opens a page, and waits until the page is loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.ask("POST", "/url", &json!({ "url": url })).map(drop)
    }

    /// Gives the page a screen of this many pixels.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": screen });
        self.ask("POST", "/goog/cdp/execute", &command).map(drop)
    }

    /// Runs a script in the page, and returns the script's result.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script until the script returns something that is not false, null or empty.
    pub fn until(&self, what: &str, script: &str) -> Result<Value> {
        wait::until(what, || {
            let value = self.run(script)?;
            let is_nothing = matches!(&value, Value::Null | Value::Bool(false)) || value == "";
            Ok((!is_nothing).then_some(value))
        })
    }

    /// Presses keys one after another. The focused element receives the keys.
    pub fn press(&self, keys: &str) -> Result<()> {
        let each = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        });
        let actions =
            json!({ "type": "key", "id": "keyboard", "actions": each.collect::<Vec<_>>() });
        self.ask("POST", "/actions", &json!({ "actions": [actions] })).map(drop)
    }

    /// URLs of all requests since the last call.
    pub fn requests(&self) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        for entry in self.log("performance")? {
            let message = entry["message"].as_str().context("an entry without a message")?;
            let message: Value = serde_json::from_str(message)?;
            if message["message"]["method"] == "Network.requestWillBeSent" {
                let url = &message["message"]["params"]["request"]["url"];
                urls.push(url.as_str().context("a request without a URL")?.to_owned());
            }
        }
        Ok(urls)
    }

    /// Complaints of scripts and of the page's policy since the last call.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let entries = self.log("browser")?;
        Ok(entries.iter().map(|entry| entry["message"].to_string()).collect())
    }

    fn log(&self, kind: &str) -> Result<Vec<Value>> {
        let entries = self.ask("POST", "/se/log", &json!({ "type": kind }))?;
        entries.as_array().cloned().context("no log")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Killing the driver does not kill its browser. This request does.
        let _ = self.ask("DELETE", "", &Value::Null);
    }
}

fn request(address: SocketAddr, method: &str, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let stream = http::begin(address, &(head + &body))?;
    let (status, text) = answer(BufReader::new(stream))
        .with_context(|| format!("the driver's answer to {method} {path}"))?;
    let mut value: Value = serde_json::from_str(&text).context("the driver's answer")?;
    if !status.contains(" 200 ") {
        let error = &value["value"];
        bail!("{method} {path}: {} {}", error["error"], error["message"]);
    }
    ensure!(value.get("value").is_some(), "an answer without a value to {method} {path}");
    Ok(value["value"].take())
}

/// Reads the status line and the body. The driver leaves its connections open, whatever a request
/// asks.
fn answer(mut stream: impl BufRead) -> Result<(String, String)> {
    let (mut status, mut length) = (String::new(), 0);
    stream.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line)? > 0, "no end of head");
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().context("the length")?;
            }
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, String::from_utf8(body)?))
}
