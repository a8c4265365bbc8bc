//! Lists in every form that clients ask for, and of a set of labels' values: what they take, and the memory that is
//! left behind.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Contender, Figure, Size, lists, object};
use crate::download::{Download, Keep};

/// Lists of each form: the fastest is told, since all do the same.
const LISTS: usize = 5;
/// Values of the label by which objects are chosen.
const SHARDS: usize = 4;

/// Encodings of a list: name, Accept header, and query.
const FORMS: [(&str, &str, &str); 7] = [
    ("as a table", "application/json;as=Table;g=meta.k8s.io;v=v1", ""),
    ("as metadata", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ""),
    ("in protobuf", "application/vnd.kubernetes.protobuf", ""),
    (
        "as metadata in protobuf",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "",
    ),
    ("in YAML", "application/yaml", ""),
    ("indented", "application/json", "?pretty=true"),
    ("by a label in a set", "application/json", "?labelSelector=shard+in+(0,1,2)"),
];

pub(crate) async fn measure(contender: &Contender, size: Size) -> anyhow::Result<Vec<Figure>> {
    let (run, objects) = (contender.run.clone(), size.objects);
    let labelled = move |n: usize| {
        let mut object = object(&format!("{run}-{n:06}"), &run, n);
        object["metadata"]["labels"]["shard"] = Value::from((n % SHARDS).to_string());
        object
    };
    let collection = lists::fill(contender, "forms", objects, labelled).await?;
    let mut figures = Vec::new();
    for (form, accept, query) in FORMS {
        // A connection of its own each, since a server may be alive longer than a connection's first buffers.
        let mut download = Download::connect(&contender.target).await?;
        let path = format!("{collection}{query}");
        let (mut best, before) = (Duration::MAX, contender.cpu_seconds());
        for _ in 0..LISTS {
            let listing = Instant::now();
            let bytes = download.get(&path, accept, Keep::Nothing).await?;
            best = best.min(listing.elapsed());
            anyhow::ensure!(bytes > objects * 100, "the list {form} was {bytes} bytes");
        }
        figures.push(Figure::lower(format!("list of {objects} {form}"), "ms", best.as_secs_f64() * 1e3));
        if let (Some(before), Some(after)) = (before, contender.cpu_seconds()) {
            let each = (after - before) * 1e3 / LISTS as f64;
            figures.push(Figure::lower(format!("list of {objects} {form}, processor time each"), "ms", each));
        }
        let resident = contender.resident_mib();
        figures.extend(resident.map(|mib| Figure::lower(format!("RSS after lists {form}"), "MiB", mib)));
    }
    Ok(figures)
}
