//! Custom resources beside ConfigMaps of the same size: what being defined at run time costs.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Server, Size};
use crate::{
    client::Client,
    load,
    report::{Better, Report},
};

const CLIENTS: usize = 64;
const BESIDE: &str = "ConfigMaps";
const VALUE_BYTES: usize = 1024;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/bench.example.com/v1/namespaces/default/widgets";

/// Cost of an object of each kind.
struct Cost {
    per_second: f64,
    processor_us: f64,
    listed_per_second: f64,
}

/// Measures one after the other on the same server.
pub(crate) async fn run(report: &mut Report, server: &Server, size: Size) -> anyhow::Result<()> {
    let client = Client::connect(&server.kubeconfig, 4).await?;
    let (code, body) =
        client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await?;
    anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
    let config_maps = measure(&client, server, size, CONFIG_MAPS, |name, n| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"bench": "custom"}},
            "data": {"n": n.to_string(), "value": "x".repeat(VALUE_BYTES)},
        })
    })
    .await?;
    let widgets = measure(&client, server, size, WIDGETS, |name, n| {
        json!({
            "apiVersion": "bench.example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "labels": {"bench": "custom"}},
            "spec": {"n": n.to_string(), "value": "x".repeat(VALUE_BYTES)},
        })
    })
    .await?;
    for (name, unit, better, value, beside) in [
        ("creates, 64 clients", "/s", Better::Higher, widgets.per_second, config_maps.per_second),
        ("processor time a create", "us", Better::Lower, widgets.processor_us, config_maps.processor_us),
        ("listed", "/s", Better::Higher, widgets.listed_per_second, config_maps.listed_per_second),
    ] {
        report.beside(format!("api: custom resources: {name}"), unit, better, value, BESIDE, beside);
    }
    Ok(())
}

async fn measure(
    client: &Client,
    server: &Server,
    size: Size,
    collection: &'static str,
    make: impl Fn(&str, usize) -> Value + Copy + Send + 'static,
) -> anyhow::Result<Cost> {
    let before = server.cpu_seconds();
    let writer = client.clone();
    let done = load::run(CLIENTS, size.time, move |worker, n| {
        let client = writer.clone();
        async move {
            let object = make(&format!("custom-{worker}-{n}"), n);
            client.post(collection, &object).await.is_ok_and(|(code, _)| code == 201)
        }
    })
    .await;
    anyhow::ensure!(done.errors == 0, "{} creates failed", done.errors);
    let processor_us = (server.cpu_seconds() - before) * 1e6 / done.count() as f64;
    let listing = Instant::now();
    let (_, body) = client.get(&format!("{collection}?labelSelector=bench%3Dcustom")).await?;
    let took = listing.elapsed().as_secs_f64();
    let list: Value = serde_json::from_slice(&body)?;
    let listed = list["items"].as_array().map_or(0, Vec::len);
    anyhow::ensure!(listed == done.count(), "{} were created, {listed} listed", done.count());
    Ok(Cost { per_second: done.per_second, processor_us, listed_per_second: listed as f64 / took })
}

/// A definition with what most have: a schema, a default, a rule, columns, a status.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "N", "type": "string", "jsonPath": ".spec.n"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {
                        "type": "object", "required": ["n"],
                        "x-kubernetes-validations": [{"rule": "self.size >= 1"}],
                        "properties": {
                            "n": {"type": "string", "maxLength": 20}, "value": {"type": "string"},
                            "size": {"type": "integer", "default": 1},
                        },
                    },
                    "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
                }}},
            }],
        },
    })
}
