//! Web servers: every answer during the cycles equals the answer before them.

use super::{Cycles, children, count, source};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::{self, Child};
use sampler_tests::wait;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of pages, each requested by a client of its own.
const PAGES: u32 = 3;

/// The body of the answer to a request, possibly compressed.
fn ask(socket: &Path, page: u32) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).context("connect")?;
    stream.set_read_timeout(Some(wait::DEADLINE))?;
    let request = format!("GET /{page} HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    stream.write_all(request.as_bytes()).context("send the request")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).context("read the answer")?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("no end of head")?;
    ensure!(bytes.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&bytes[..end]));
    Ok(bytes.split_off(end + 4))
}

/// Requests a page again and again. Returns the number of requests.
fn compare(socket: &Path, page: u32, expected: &[u8], ends: &AtomicBool) -> Result<u64> {
    let mut answers = 0;
    while !ends.load(Ordering::Relaxed) {
        let body = ask(socket, page).with_context(|| format!("page {page}"))?;
        ensure!(body == expected, "page {page}: {} bytes differ", body.len());
        answers += 1;
    }
    Ok(answers)
}

/// Injects and ejects the processes of a server while clients compare its answers.
fn serve(name: &'static str, socket: &Path, pids: &[u32]) -> Result<()> {
    let pages = (0..PAGES).map(|page| ask(socket, page)).collect::<Result<Vec<_>>>()?;
    let sizes = pages.iter().map(Vec::len);
    ensure!(sizes.clone().all(|bytes| bytes > 1000), "{name}: {:?}", sizes.collect::<Vec<_>>());
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = &ends;
        let clients: Vec<_> = (0..PAGES)
            .zip(&pages)
            .map(|(page, body)| scope.spawn(move || compare(socket, page, body, ends)))
            .collect();
        let mut cycles = Cycles::new(name, pids);
        let made = count().and_then(|count| (0..count).try_for_each(|_| cycles.make()));
        ends.store(true, Ordering::Relaxed);
        for client in clients {
            let answers = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            println!("{name}: {answers} answers are right");
            ensure!(answers > 0, "{name}: a client got no answer");
        }
        made
    })
}

fn ends_well(mut server: Child, signal: i32) -> Result<()> {
    server.signal(signal)?;
    let status = server.wait()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}

/// Waits until a server answers.
fn until_it_answers(socket: &Path) -> Result<()> {
    wait::until("the server", || Ok(ask(socket, 0).ok().map(drop)))
}

#[test]
fn node() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("socket");
    let mut command = Command::new("node");
    let server = Child::start("node", command.arg(source("injected.js")).arg(&socket))?;
    until_it_answers(&socket)?;
    serve("node", &socket, &[server.pid()])?;
    ends_well(server, 15)
}

#[test]
fn nginx() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().display();
    for page in 0..PAGES {
        let text: String = (0..3000 * (page + 1)).map(|i| format!("{} ", i * 7919)).collect();
        fs::write(directory.path().join(page.to_string()), text)?;
    }
    let configuration = format!(
        "daemon off; user root; worker_processes 2; pid {path}/pid; error_log stderr; events {{}} \
         http {{ access_log off; default_type text/html; gzip on; gzip_http_version 1.0; \
         server {{ listen unix:{path}/socket; root {path}; }} }}"
    );
    let file = directory.path().join("nginx.conf");
    fs::write(&file, configuration)?;
    let mut command = Command::new("/usr/sbin/nginx");
    command.args(["-e", "stderr", "-c"]).arg(&file).stderr(Stdio::inherit());
    let server = Child::start("nginx", &mut command)?;
    let socket = directory.path().join("socket");
    until_it_answers(&socket)?;
    let workers = wait::until("two workers", || {
        Ok(Some(children(server.pid())?).filter(|workers| workers.len() == 2))
    })?;
    let served = serve("nginx", &socket, &[&[server.pid()], &workers[..]].concat());
    if served.is_err() {
        // The workers survive a server that is killed.
        workers.iter().try_for_each(|worker| child::kill(*worker, 9))?;
    }
    served?;
    // SIGQUIT: the server waits for its workers.
    ends_well(server, 3)
}
