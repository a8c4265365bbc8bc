//! Clients that ask for much and do not read: long lists, and watches that start far in the past.

use http::Response;
use hyper::body::Incoming;
use serde_json::{Map, json};

use super::{Reads, SETTLE, Target};
use crate::{api::CONFIG_MAPS, client::Client, report::Report};

/// Objects of the collection that is listed, and bytes of each: 86 MB in all.
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 860_000;
const LISTS: usize = 300;
const WATCHES: usize = 10_000;
/// Requests that share a connection.
const CONNECTION_REQUESTS: usize = 100;

pub(super) async fn run(report: &mut Report, target: &Target) -> anyhow::Result<()> {
    let (_, body) = target.polite.get(&format!("{CONFIG_MAPS}?limit=1")).await?;
    let list: serde_json::Value = serde_json::from_slice(&body)?;
    let start = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    for n in 0..OBJECTS {
        let data = Map::from_iter([("value".to_owned(), "x".repeat(OBJECT_BYTES).into())]);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{n}")}, "data": data,
        });
        let (code, _) = target.polite.post(CONFIG_MAPS, &object).await?;
        anyhow::ensure!(code == 201, "a large object: {code}");
    }
    tokio::time::sleep(SETTLE).await;
    measure(report, target, &format!("{LISTS} lists of 86 MB"), LISTS, CONFIG_MAPS).await?;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}");
    measure(report, target, &format!("{WATCHES} watches that are 86 MB behind"), WATCHES, &path).await
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
    let mut unread: Vec<(Client, Vec<Response<Incoming>>)> = Vec::new();
    for opened in (0..count).step_by(CONNECTION_REQUESTS) {
        let client = Client::connect(&target.server.kubeconfig, 1).await?;
        let mut responses = Vec::new();
        for _ in opened..count.min(opened + CONNECTION_REQUESTS) {
            responses.push(client.open(path).await?);
        }
        unread.push((client, responses));
    }
    tokio::time::sleep(target.time.max(SETTLE)).await;
    let name = format!("{name}, never read");
    report.alone(
        format!("abuse: {name}: processor time"),
        "ms",
        (target.server.cpu_seconds() - processor) * 1e3,
    );
    report.alone(format!("abuse: {name}: more RSS meanwhile"), "MiB", target.server.resident_mib() - idle);
    target.report_polite(report, &name, &alone, &reads.stop().await);
    drop(unread);
    tokio::time::sleep(SETTLE).await;
    report.alone(format!("abuse: {name}: more RSS afterwards"), "MiB", target.server.resident_mib() - idle);
    Ok(())
}
