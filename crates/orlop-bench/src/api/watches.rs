//! Events to many watchers of the same objects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{CONFIG_MAPS, Contender, Figure, Operation, Size};
use crate::{client::Client, load};

const WRITERS: usize = 16;
/// Watches of one connection: Kubernetes allows no more requests at a time than this.
const CONNECTION_WATCHES: usize = 100;
/// A server that sends nothing for so long has sent all it will.
const SILENCE: Duration = Duration::from_secs(1);

pub(crate) async fn measure(contender: &Contender, size: Size) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for watchers in [1, 100, 1000] {
        figures.extend(fan_out(contender, watchers, size.time).await?);
    }
    Ok(figures)
}

/// Measures events a second that reach all watchers together, while objects are updated as fast as possible.
async fn fan_out(contender: &Contender, watchers: usize, time: Duration) -> anyhow::Result<Vec<Figure>> {
    let watching = Client::connect(&contender.kubeconfig, watchers.div_ceil(CONNECTION_WATCHES)).await?;
    let (_, body) = contender.client.get(&format!("{CONFIG_MAPS}?limit=1")).await?;
    let list: serde_json::Value = serde_json::from_slice(&body)?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let (begun, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..watchers {
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
        let (client, begun, seen) = (watching.clone(), begun.clone(), seen.clone());
        tasks.spawn(async move { client.count_lines(&path, &begun, &seen).await });
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while begun.load(Ordering::Relaxed) < watchers {
        anyhow::ensure!(Instant::now() < deadline, "only {} watches began", begun.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (server, generator) = (contender.cpu_seconds(), load::processor_seconds(std::process::id()));
    let (writer, run) = (contender.client.clone(), contender.run.clone());
    let started = Instant::now();
    let written = load::run(WRITERS, time, move |worker, n| {
        let (client, run) = (writer.clone(), run.clone());
        async move { Operation::Update.once(&client, &run, worker, n).await }
    })
    .await;
    let expected = written.count() * watchers;
    let (mut last, mut at) = (0, Instant::now());
    while last < expected && at.elapsed() < SILENCE {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now = seen.load(Ordering::Relaxed);
        if now > last {
            (last, at) = (now, Instant::now());
        }
    }
    let rate = last as f64 / (at - started).as_secs_f64();
    let us_each = |seconds: f64| seconds * 1e6 / last.max(1) as f64;
    let to = format!("events to {watchers} watchers");
    let mut figures = vec![Figure::higher(&to, "/s", rate)];
    if let (Some(before), Some(after)) = (server, contender.cpu_seconds()) {
        figures.push(Figure::lower(format!("{to}, processor time each"), "us", us_each(after - before)));
    }
    let generated = us_each(load::processor_seconds(std::process::id()) - generator);
    figures.push(Figure::lower(format!("{to}, the load's own time each"), "us", generated));
    if last < expected {
        // Kubernetes ends watches that do not keep up.
        let lost = (expected - last) as f64 * 100.0 / expected as f64;
        figures.push(Figure::lower(format!("{to}, not delivered"), "%", lost));
    }
    Ok(figures)
}
