//! Clients that ask for much and do not read: long lists, and watches that start far in the past.

use std::{path::Path, process::Stdio};

use anyhow::Context;
use http::Response;
use hyper::body::Incoming;
use serde_json::{Map, json};
use tokio::io::AsyncReadExt;

use super::{Reads, SETTLE, Target};
use crate::{api::CONFIG_MAPS, client::Client, load::least_priority, report::Report};

/// Objects of the collection that is listed, and bytes of each: 86 MB in all.
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 860_000;
/// Small objects, and bytes of each.
const SMALL_OBJECTS: usize = 4_000;
const SMALL_OBJECT_BYTES: usize = 1_000;
const LISTS: usize = 300;
const WATCHES: usize = 10_000;
/// Requests that share a connection.
const CONNECTION_REQUESTS: usize = 100;

pub(super) async fn run(report: &mut Report, target: &Target) -> anyhow::Result<()> {
    let start = create(target, "large", OBJECTS, OBJECT_BYTES).await?;
    tokio::time::sleep(SETTLE).await;
    measure(report, target, &format!("{LISTS} lists of 86 MB"), LISTS, CONFIG_MAPS).await?;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}");
    measure(report, target, &format!("{WATCHES} watches that are 86 MB behind"), WATCHES, &path).await?;
    let start = create(target, "small", SMALL_OBJECTS, SMALL_OBJECT_BYTES).await?;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}");
    measure(
        report,
        target,
        &format!("{WATCHES} watches that are {SMALL_OBJECTS} small events behind"),
        WATCHES,
        &path,
    )
    .await
}

/// Creates objects. Returns the resource version before them.
async fn create(target: &Target, name: &str, objects: usize, bytes: usize) -> anyhow::Result<String> {
    let (_, body) = target.polite.get(&format!("{CONFIG_MAPS}?limit=1")).await?;
    let list: serde_json::Value = serde_json::from_slice(&body)?;
    for n in 0..objects {
        let data = Map::from_iter([("value".to_owned(), "x".repeat(bytes).into())]);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-{n}")}, "data": data,
        });
        let (code, _) = target.polite.post(CONFIG_MAPS, &object).await?;
        anyhow::ensure!(code == 201, "a {name} object: {code}");
    }
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

/// Opens requests that nobody reads, and measures memory before, meanwhile and after.
async fn measure(
    report: &mut Report,
    target: &Target,
    name: &str,
    count: usize,
    path: &str,
) -> anyhow::Result<()> {
    let idle = target.server.resident_mib();
    let alone = target.alone().await;
    let reads = Reads::start(target.polite.clone());
    let processor = target.server.cpu_seconds();
    let mut unread = least_priority()?
        .arg("unread")
        .arg(&target.server.kubeconfig)
        .args([path, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the clients that do not read")?;
    let mut opened = [0];
    unread.stdout.take().context("no standard output")?.read_exact(&mut opened).await?;
    let name = format!("{name}, never read");
    target.report_polite(report, &format!("{name}, while they are opened"), &alone, &reads.stop().await);
    let reads = Reads::start(target.polite.clone());
    tokio::time::sleep(target.time.max(SETTLE)).await;
    report.alone(
        format!("abuse: {name}: processor time"),
        "ms",
        (target.server.cpu_seconds() - processor) * 1e3,
    );
    report.alone(format!("abuse: {name}: more RSS meanwhile"), "MiB", target.server.resident_mib() - idle);
    target.report_polite(report, &name, &alone, &reads.stop().await);
    drop(unread.stdin.take());
    unread.wait().await?;
    tokio::time::sleep(SETTLE).await;
    report.alone(format!("abuse: {name}: more RSS afterwards"), "MiB", target.server.resident_mib() - idle);
    Ok(())
}

/// Opens requests and reads no response. Prints a line once they are open, and holds them until standard input ends.
pub(crate) async fn hold(kubeconfig: &Path, path: &str, count: usize) -> anyhow::Result<()> {
    let mut unread: Vec<(Client, Vec<Response<Incoming>>)> = Vec::new();
    for opened in (0..count).step_by(CONNECTION_REQUESTS) {
        let client = Client::connect(kubeconfig, 1).await?;
        let mut responses = Vec::new();
        for _ in opened..count.min(opened + CONNECTION_REQUESTS) {
            responses.push(client.open(path).await?);
        }
        unread.push((client, responses));
    }
    println!();
    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await??;
    Ok(())
}
