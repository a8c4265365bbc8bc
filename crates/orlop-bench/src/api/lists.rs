//! Lists of many objects, and the memory that holding and listing them takes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Contender, Figure, Size, object};
use crate::{
    download::{Download, JSON, Keep},
    load,
};

/// Lists of each kind: the fastest is told, since all do the same.
const LISTS: usize = 20;
const PAGE: usize = 500;

pub(crate) async fn measure(contender: &Contender, size: Size) -> anyhow::Result<Vec<Figure>> {
    let (client, run) = (&contender.client, &contender.run);
    let collection = fill_plain(contender, size.objects).await?;
    let objects = size.objects;
    let mut figures = Vec::new();
    let with = |what: &str, mib: f64| Figure::lower(format!("RSS {what} {objects} ConfigMaps"), "MiB", mib);
    figures.extend(contender.resident_mib().map(|mib| with("with", mib)));

    let mut download = Download::connect(&contender.target).await?;
    let label = format!("{collection}?labelSelector=bench%3D{run}");
    for (what, path) in [("", &collection), (" by label", &label)] {
        let (mut best, before) = (Duration::MAX, contender.cpu_seconds());
        let generator = load::processor_seconds(std::process::id());
        let mut bytes = Vec::new();
        for _ in 0..LISTS {
            let listing = Instant::now();
            bytes.push(download.get(path, JSON, Keep::Nothing).await?);
            best = best.min(listing.elapsed());
        }
        let generated = (load::processor_seconds(std::process::id()) - generator) * 1e3 / LISTS as f64;
        let after = contender.cpu_seconds();
        let length = download.get(path, JSON, Keep::All).await?;
        anyhow::ensure!(bytes.iter().all(|bytes| *bytes == length), "lists of {length} and {bytes:?} bytes");
        // Besides ours there is kube-root-ca.crt, which has no label.
        let listed = count_items(&download.body);
        anyhow::ensure!((objects..objects + 2).contains(&listed), "listed {listed} objects");
        let rate = objects as f64 / best.as_secs_f64();
        figures.push(Figure::lower(format!("list of {objects}{what}"), "ms", best.as_secs_f64() * 1e3));
        figures.push(Figure::higher(format!("objects listed in one go{what}"), "/s", rate));
        if let (Some(before), Some(after)) = (before, after) {
            let each = (after - before) * 1e3 / LISTS as f64;
            figures.push(Figure::lower(format!("list of {objects}{what}, processor time each"), "ms", each));
        }
        let own = format!("list of {objects}{what}, the load's own time each");
        figures.push(Figure::lower(own, "ms", generated));
    }

    let walking = Instant::now();
    let mut token = String::new();
    loop {
        let path = format!("{collection}?limit={PAGE}&continue={token}");
        let (_, body) = client.get(&path).await?;
        match continue_of(&body) {
            Some(next) => token = next,
            None => break,
        }
    }
    let rate = objects as f64 / walking.elapsed().as_secs_f64();
    figures.push(Figure::higher(format!("objects listed in pages of {PAGE}"), "/s", rate));
    figures.extend(contender.resident_mib().map(|mib| with("after lists of", mib)));
    Ok(figures)
}

/// As [`fill`], with objects that have nothing of their own but their name and number.
pub(crate) async fn fill_plain(contender: &Contender, objects: usize) -> anyhow::Result<String> {
    let run = contender.run.clone();
    fill(contender, "lists", objects, move |n| object(&format!("{run}-{n:06}"), &run, n)).await
}

/// Makes a namespace of their own for so many objects, so that exactly these are listed; its collection.
pub(crate) async fn fill(
    contender: &Contender,
    namespace: &str,
    objects: usize,
    made: impl Fn(usize) -> Value + Clone + Send + Sync + 'static,
) -> anyhow::Result<String> {
    const AT_ONCE: usize = 64;
    let (client, run) = (&contender.client, &contender.run);
    let namespace = format!("{run}-{namespace}");
    let place = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let (code, body) = client.post("/api/v1/namespaces", &place).await?;
    anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..AT_ONCE {
        let (client, collection, made) = (client.clone(), collection.clone(), made.clone());
        tasks.spawn(async move {
            for n in (worker..objects).step_by(AT_ONCE) {
                let (code, body) = client.post(&collection, &made(n)).await?;
                anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(collection)
}

fn count_items(list: &[u8]) -> usize {
    let list: Value = serde_json::from_slice(list).unwrap_or_default();
    list["items"].as_array().map_or(0, Vec::len)
}

fn continue_of(list: &[u8]) -> Option<String> {
    let list: Value = serde_json::from_slice(list).ok()?;
    list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}
