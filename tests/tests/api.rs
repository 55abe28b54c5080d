//! The API from the view of a generic client, which uses reflection only.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::client::{Answers, Client};
use sampler_tests::{Daemon, Workload, breakpoints, build, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const SERVICE: &str = "sampler.v1.Sampler";

const SIGTERM: i32 = 15;
/// Pause between two checks of a condition.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A program that allocates 100 bytes every millisecond, all of them sampled.
fn ticking(arguments: &[&str]) -> Result<(Workload, Daemon)> {
    let mut workload = Workload::edge(&["ticks"])?;
    let arguments = [&["--interval", "1"], arguments].concat();
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    workload.truth()?;
    Ok((workload, daemon))
}

async fn learnt(daemon: &Daemon) -> Result<Client> {
    let mut client = Client::connect(&daemon.address).await?;
    client.learn(SERVICE).await?;
    Ok(client)
}

async fn soon<T>(what: &str, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(wait::DEADLINE, answer).await;
    answer.with_context(|| format!("no {what} within {} s", wait::DEADLINE.as_secs()))?
}

async fn next(what: &str, answers: &mut Answers) -> Result<Value> {
    soon(what, answers.next()).await?.with_context(|| format!("the stream of {what} ended"))
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is no count"))
}

#[tokio::test]
async fn a_generic_client_reads_a_profile() -> Result<()> {
    let mut workload = Workload::edge(&["realloc"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
    workload.go()?;
    let truth = workload.truth()?.total();
    let mut client = Client::connect(&daemon.address).await?;
    let services = client.services().await?;
    for service in [SERVICE, "grpc.health.v1.Health"] {
        ensure!(services.iter().any(|name| name == service), "no {service} in {services:?}");
    }
    client.learn(SERVICE).await?;
    let methods = client.methods(SERVICE)?;
    for method in
        ["Status", "ListProcesses", "SetSampling", "GetProfile", "WatchProfile", "StreamSamples"]
    {
        ensure!(methods.iter().any(|name| name == method), "no {method} in {methods:?}");
    }

    let status = client.call(SERVICE, "Status", json!({})).await?;
    ensure!(status["live_tracking"] == true, "{status}");
    let processes = client.call(SERVICE, "ListProcesses", json!({})).await?;
    let pid = number(&processes["processes"][0]["pid"])?;
    ensure!(pid == u64::from(workload.pid()), "{processes}");

    let request = json!({"kind": "KIND_LIVE", "pids": [workload.pid()], "confidence": 0.99});
    let profile = client.call(SERVICE, "GetProfile", request).await?;
    ensure!(number(&profile["exact"]["alloc_space"])? == truth.alloc.bytes, "{profile}");
    let held = profile["totals"]["inuse_space"]["value"].as_f64();
    ensure!(held == Some(truth.live.bytes as f64), "{profile}");
    let strings = profile["strings"].as_array().context("no strings")?;
    ensure!(strings.iter().any(|name| name == "realloc_moves"), "no name in {strings:?}");

    let refused = client.call(SERVICE, "GetProfile", json!({"kind": "KIND_LIVE", "confidence": 7}));
    ensure!(refused.await.is_err(), "a confidence of 7 must be refused");
    workload.exit()?;
    daemon.stop()
}

/// Health of the server and of our service: 1 is serving, 2 is not serving.
async fn health(daemon: &Daemon) -> Result<[i32; 2]> {
    let client = Client::connect(&daemon.address).await?;
    let mut health = HealthClient::new(client.channel());
    let mut answers = [0; 2];
    for (answer, service) in answers.iter_mut().zip(["", SERVICE]) {
        let request = HealthCheckRequest { service: service.to_string() };
        *answer = health.check(request).await?.into_inner().status;
    }
    Ok(answers)
}

async fn is_health(daemon: &Daemon, status: i32) -> Result<()> {
    let changed = async {
        while health(daemon).await? != [status; 2] {
            tokio::time::sleep(POLL_PERIOD).await;
        }
        Ok(())
    };
    soon("change of health", changed).await
}

/// Stops the worker thread of samplerd until the returned program gets a line.
fn stop_worker(daemon: &Daemon) -> Result<Child> {
    let is_worker = |tid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", daemon.pid()));
        name.is_ok_and(|name| name == "worker\n")
    };
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid()))?.flatten();
    let mut tids = threads.filter_map(|of| of.file_name().to_str()?.parse::<u32>().ok());
    let tid = tids.find(is_worker).context("samplerd has no worker thread")?;
    let mut command = Command::new(build::compile("hold.c", &[])?);
    let mut holder = Child::start("hold.c", command.arg(tid.to_string()))?;
    ensure!(holder.line()? == "stopped", "the worker thread was not stopped");
    Ok(holder)
}

#[tokio::test]
async fn health_is_serving_only_while_the_worker_answers() -> Result<()> {
    let (workload, mut daemon) = ticking(&[])?;
    ensure!(health(&daemon).await? == [1; 2], "health says {:?}", health(&daemon).await?);
    let mut holder = stop_worker(&daemon)?;
    is_health(&daemon, 2).await?;
    ensure!(daemon.log().contains("nothing is answered"), "{}", daemon.log());
    holder.send("go on")?;
    ensure!(holder.wait()?.success(), "the worker thread was not let go");
    is_health(&daemon, 1).await?;
    ensure!(daemon.outcome("sampled")? > 0, "{}", daemon.status()?);

    let probes = breakpoints::sites(&daemon.status()?)?;
    // SIGTERM ends samplerd even now, and the guardian removes the probes.
    let _holder = stop_worker(&daemon)?;
    let guardian = daemon.guardian()?;
    daemon.child().signal(SIGTERM)?;
    let status = daemon.child().wait()?;
    ensure!(status.success(), "{status}: {}", daemon.log());
    ensure!(daemon.log().contains("samplerd ends without it"), "{}", daemon.log());
    let is_gone = || Ok((!Path::new(&format!("/proc/{guardian}")).exists()).then_some(()));
    wait::until("the guardian to end", is_gone)?;
    let standing = breakpoints::standing(workload.pid(), &probes)?;
    ensure!(standing == 0, "{standing} breakpoints are left");
    Ok(())
}

#[tokio::test]
async fn samples_stream_as_they_arrive() -> Result<()> {
    let (workload, daemon) = ticking(&[])?;
    let client = learnt(&daemon).await?;
    let request = json!({"pids": [workload.pid()]});
    let mut samples = client.stream(SERVICE, "StreamSamples", request).await?;
    let mut last = 0;
    for _ in 0..20 {
        let sample = next("samples", &mut samples).await?;
        ensure!(number(&sample["pid"])? == u64::from(workload.pid()), "{sample}");
        ensure!(number(&sample["tid"])? == u64::from(workload.pid()), "{sample}");
        ensure!(number(&sample["size"])? == 100, "{sample}");
        ensure!(sample["inclusion"].as_f64() == Some(1.0), "{sample}");
        let time = number(&sample["time_ns"])?;
        ensure!(time > last, "times must rise: {sample}");
        last = time;
        let frames = sample["frames"].as_array().context("no frames")?;
        ensure!(frames.len() >= 3, "{sample}");
        ensure!(frames.iter().all(|frame| frame["path"] != ""), "{sample}");
    }
    daemon.stop()
}

#[tokio::test]
async fn profiles_are_watched() -> Result<()> {
    let (_workload, daemon) = ticking(&[])?;
    let client = learnt(&daemon).await?;
    let request = json!({"profile": {"kind": "KIND_ALLOC"}, "period_ms": 200});
    let mut profiles = client.stream(SERVICE, "WatchProfile", request).await?;
    // The program may have waited for a CPU for a whole period.
    soon("three profiles with more", async {
        let (mut last, mut risen) = (0, 0);
        while risen < 3 {
            let profile = next("profiles", &mut profiles).await?;
            let exact = number(&profile["exact"]["alloc_objects"])?;
            ensure!(exact >= last, "{exact} after {last}");
            risen += u32::from(exact > last);
            last = exact;
        }
        Ok(())
    })
    .await?;
    let hasty = json!({"profile": {"kind": "KIND_ALLOC"}, "period_ms": 1});
    let refused = match client.stream(SERVICE, "WatchProfile", hasty).await {
        // A stream that sends nothing is no refusal.
        Ok(mut profiles) => soon("refusal", async { Ok(profiles.next().await.is_err()) }).await?,
        Err(_) => true,
    };
    ensure!(refused, "a period of 1 ms must be refused");
    daemon.stop()
}

#[tokio::test]
async fn watchers_of_one_question_share_profiles() -> Result<()> {
    let (_workload, daemon) = ticking(&[])?;
    let client = learnt(&daemon).await?;
    let watch = |kind: &str| json!({"profile": {"kind": kind}, "period_ms": 500});
    let mut streams = Vec::new();
    for kind in ["KIND_ALLOC", "KIND_ALLOC", "KIND_LIVE"] {
        streams.push(client.stream(SERVICE, "WatchProfile", watch(kind)).await?);
    }
    // The time at which a profile was made identifies it.
    let mut times = [const { BTreeSet::new() }; 3];
    soon("three shared profiles", async {
        while times[0].intersection(&times[1]).count() < 3 {
            for (stream, times) in streams.iter_mut().zip(&mut times) {
                times.insert(number(&next("profiles", stream).await?["time_unix_ns"])?);
            }
        }
        Ok(())
    })
    .await?;
    ensure!(times[2].is_disjoint(&times[0]), "a profile of another kind: {times:?}");
    daemon.stop()
}

#[tokio::test]
async fn the_interval_changes_while_running() -> Result<()> {
    let (workload, daemon) = ticking(&[])?;
    let client = learnt(&daemon).await?;
    let huge = 1u64 << 32;
    let request = json!({"pids": [workload.pid()], "interval_bytes": huge});
    let answer = client.call(SERVICE, "SetSampling", request).await?;
    ensure!(number(&answer["intervals"][0]["interval_bytes"])? == huge, "{answer}");
    // One call may still have been in progress at the old rate.
    let ask = || client.call(SERVICE, "GetProfile", json!({"kind": "KIND_ALLOC"}));
    let before = ask().await?;
    let exact = |profile: &Value| number(&profile["exact"]["alloc_objects"]);
    let after = soon("a hundred allocations more", async {
        loop {
            let after = ask().await?;
            if exact(&after)? > exact(&before)? + 100 {
                return Ok(after);
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
    })
    .await?;
    let samples = number(&after["samples"])? - number(&before["samples"])?;
    ensure!(samples <= 1, "{samples} samples after the interval became 4 GiB");
    for bad in [0, huge + 1] {
        let request = json!({"interval_bytes": bad});
        ensure!(client.call(SERVICE, "SetSampling", request).await.is_err(), "{bad} is refused");
    }
    daemon.stop()
}

#[tokio::test]
async fn tcp_is_served_on_loopback_on_request() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    // The port was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("tcp:127.0.0.1:{port}");
    let daemon = Daemon::start_at(&address, &[workload.pid()], &[])?;
    let status = daemon.status().context("sampler over tcp")?;
    ensure!(number(&status["max_live"])? > 0, "{status}");
    daemon.stop()
}
