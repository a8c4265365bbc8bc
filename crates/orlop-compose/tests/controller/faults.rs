//! A model of what an instance should have, against a server that fails at random and a controller that is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use orlop_compose::Settings;
use serde_json::{Value as Json, json};

use crate::harness::{Harness, definition, instance, map, spawn_with};

/// A small generator, so that a failure can be repeated from its seed.
#[derive(Clone)]
struct Random(Arc<AtomicU64>);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    fn below(&self, end: u64) -> u64 {
        let step = |x: u64| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let next = step(self.0.load(Ordering::SeqCst));
        self.0.store(next, Ordering::SeqCst);
        (next >> 33) % end
    }
}

/// A client whose requests fail at random while `failing` is set: before the server sees them, or after it has acted.
fn flaky(client: Client, random: Random, failing: Arc<AtomicBool>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let accept =
            request.headers().get("accept").and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        // Watches have a back-off of seconds, which a test cannot wait for.
        let watches = accept.contains("PartialObjectMetadata");
        let fate = if watches || !failing.load(Ordering::SeqCst) { 9 } else { random.below(10) };
        async move {
            let refuse = |code: u16| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "injected", "reason": "InternalError", "code": code});
                Response::builder()
                    .status(code)
                    .header("content-type", "application/json")
                    .body(Body::from(status.to_string().into_bytes()))
                    .map_err(kube::Error::HttpError)
            };
            match fate {
                0 => refuse(503),
                1 => refuse(429),
                2 => {
                    let _ = client.send(request).await?;
                    refuse(504)
                }
                3 => refuse(409),
                4 => {
                    // Keep others waiting a little.
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    client.send(request).await
                }
                _ => client.send(request).await,
            }
        }
    });
    Client::new(service, "default")
}

fn graph() -> Json {
    let mut optional = map("optional", "m-optional", json!({"v": "${base.data.v}"}));
    optional["includeWhen"] = json!(["${schema.spec.extra}"]);
    let mut parts = map("parts", "${'m-part-' + name}", json!({"v": "${base.data.v}"}));
    parts["forEach"] = json!([{"name": "${schema.spec.names}"}]);
    definition(
        "model",
        "Model",
        json!({"value": "string", "extra": "boolean", "names": "[]string"}),
        json!({}),
        json!([
            map("base", "m-base", json!({"v": "${schema.spec.value}"})),
            optional,
            parts,
            map("last", "m-last", json!({"v": "${base.data.v}", "n": "${string(parts.size())}"}))
        ]),
    )
}

fn random_spec(random: &Random) -> Json {
    let names: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|_| random.below(2) == 0).collect();
    json!({"value": format!("v{}", random.below(5)), "extra": random.below(2) == 0, "names": names})
}

/// The objects that an instance should have, with their data.
fn expected(spec: &Json) -> BTreeSet<(String, String)> {
    let value = spec["value"].as_str().unwrap_or_default();
    let names = spec["names"].as_array().cloned().unwrap_or_default();
    let mut all =
        BTreeSet::from([("m-base".to_owned(), value.to_owned()), ("m-last".to_owned(), value.to_owned())]);
    if spec["extra"] == true {
        all.insert(("m-optional".to_owned(), value.to_owned()));
    }
    all.extend(
        names.iter().map(|name| (format!("m-part-{}", name.as_str().unwrap_or_default()), value.to_owned())),
    );
    all
}

async fn found(harness: &Harness) -> anyhow::Result<BTreeSet<(String, String)>> {
    let maps = harness.list("v1", "ConfigMap", None).await?;
    let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
    let owned = maps.iter().filter(|map| map["metadata"]["labels"]["kro.run/owned"] == "true");
    Ok(owned.map(|map| (text(&map["metadata"]["name"]), text(&map["data"]["v"]))).collect())
}

#[tokio::test]
async fn instance_converges_through_failures_and_kills_and_leaves_no_orphan() -> anyhow::Result<()> {
    for seed in 1..=6 {
        let random = Random::new(seed);
        let failing = Arc::new(AtomicBool::new(false));
        let mut harness = Harness::start().await?;
        // Somebody else's object under a name that the graph may want later on, and one that it never wants.
        harness.apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m-theirs"}, "data": {"v": "theirs"}})).await?;
        harness.apply_json(&graph()).await?;
        harness.definition("model", "Active").await?;
        failing.store(true, Ordering::SeqCst);
        let client = || flaky(harness.server.client(), random.clone(), failing.clone());
        let restarted = spawn_with(client(), Settings::default());
        harness.replace(restarted);
        let mut spec = random_spec(&random);
        harness.apply_json(&instance("Model", "i", spec.clone())).await?;
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(random.below(30))).await;
            if random.below(3) == 0 {
                let client = flaky(harness.server.client(), random.clone(), failing.clone());
                harness.replace(spawn_with(client, Settings::default()));
            } else {
                spec = random_spec(&random);
                harness.apply_json(&instance("Model", "i", spec.clone())).await?;
            }
        }
        failing.store(false, Ordering::SeqCst);
        harness
            .until("the instance converges", async || {
                Ok((found(&harness).await? == expected(&spec)).then_some(()))
            })
            .await?;
        harness.instance("Model", "i", "ACTIVE").await?;
        failing.store(true, Ordering::SeqCst);
        harness.delete("kro.run/v1alpha1", "Model", "i").await?;
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
        harness.replace(spawn_with(
            flaky(harness.server.client(), random.clone(), failing.clone()),
            Settings::default(),
        ));
        failing.store(false, Ordering::SeqCst);
        harness.gone("kro.run/v1alpha1", "Model", "i").await?;
        assert_eq!(found(&harness).await?, BTreeSet::new(), "seed {seed} leaves orphans");
        assert!(harness.config_map("m-theirs").await?.is_some());
    }
    Ok(())
}
