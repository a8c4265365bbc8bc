//! A controller that is killed at every single call: before the server sees it, and right after it acted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Request;
use kube::Client;
use kube::client::Body;
use orlop_compose::Settings;
use serde_json::{Value as Json, json};

use crate::harness::{Harness, definition, instance, map, spawn_with};

/// A client whose calls stop for ever at one of them: the process is as good as dead.
#[derive(Clone)]
struct Mortal {
    calls: Arc<AtomicUsize>,
    dead: Arc<AtomicBool>,
    last: usize,
    /// The last call still reaches the server.
    acts: bool,
}

impl Mortal {
    fn new(last: usize, acts: bool) -> Self {
        Self { calls: Arc::default(), dead: Arc::default(), last, acts }
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn client(&self, client: Client) -> Client {
        let mortal = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, mortal) = (client.clone(), mortal.clone());
            let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
            let watches = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
            let call = if watches { 0 } else { mortal.calls.fetch_add(1, Ordering::SeqCst) + 1 };
            async move {
                if call < mortal.last || watches {
                    return client.send(request).await;
                }
                if call == mortal.last && mortal.acts {
                    let _ = client.send(request).await;
                }
                mortal.dead.store(true, Ordering::SeqCst);
                std::future::pending().await
            }
        });
        Client::new(service, "default")
    }
}

fn graph() -> Json {
    let mut optional = map("optional", "m-optional", json!({"v": "${base.data.v}"}));
    optional["includeWhen"] = json!(["${schema.spec.extra}"]);
    let mut kept = map("kept", "m-kept", json!({"v": "${base.data.v}"}));
    kept["lifecycle"] = json!({"onDelete": "Retain"});
    let resources = json!([map("base", "m-base", json!({"v": "${schema.spec.value}"})), optional, kept]);
    definition(
        "model",
        "Model",
        json!({"value": "string", "extra": "boolean"}),
        json!({"v": "${base.data.v}"}),
        resources,
    )
}

async fn owned(harness: &Harness) -> anyhow::Result<BTreeSet<(String, String)>> {
    let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
    let maps = harness.list("v1", "ConfigMap", None).await?;
    let owned = maps.iter().filter(|map| map["metadata"]["labels"]["kro.run/owned"] == "true");
    Ok(owned.map(|map| (text(&map["metadata"]["name"]), text(&map["data"]["v"]))).collect())
}

/// Steps of an instance's life, each of which a controller dies in.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Update,
    Delete,
}

/// Kills the controller at call `last` of a step; returns whether the step got that far.
async fn die_at(harness: &mut Harness, step: Step, last: usize, acts: bool) -> anyhow::Result<bool> {
    let at = ("kro.run/v1alpha1", "Model", "i");
    let extra = matches!(step, Step::Create);
    let wanted = |value: &str, extra: bool| {
        let mut all = BTreeSet::from(["m-base", "m-kept"]);
        all.extend(extra.then_some("m-optional"));
        all.into_iter().map(|name| (name.to_owned(), value.to_owned())).collect::<BTreeSet<_>>()
    };
    if !matches!(step, Step::Create) {
        harness.apply_json(&instance("Model", "i", json!({"value": "one", "extra": true}))).await?;
        harness.instance("Model", "i", "ACTIVE").await?;
    }
    // The mortal one takes over from a healthy one, so that its calls are those of the step.
    let mortal = Mortal::new(last, acts);
    harness.replace(spawn_with(mortal.client(harness.server.client()), Settings::default()));
    match step {
        Step::Create => {
            harness.apply_json(&instance("Model", "i", json!({"value": "one", "extra": true}))).await?;
        }
        Step::Update => {
            harness.apply_json(&instance("Model", "i", json!({"value": "two", "extra": false}))).await?;
        }
        Step::Delete => harness.delete(at.0, at.1, at.2).await?,
    }
    let settled = async |harness: &Harness| -> anyhow::Result<bool> {
        Ok(match step {
            Step::Delete => harness.get(at.0, at.1, at.2).await?.is_none(),
            _ => {
                let value = if extra { "one" } else { "two" };
                let i = harness.get(at.0, at.1, at.2).await?.unwrap_or_default();
                owned(harness).await? == wanted(value, extra)
                    && i["status"]["state"] == "ACTIVE"
                    && i["status"]["v"] == value
                    && i["status"]["conditions"][0]["observedGeneration"] == i["metadata"]["generation"]
            }
        })
    };
    let died = harness
        .until("it dies, or is done", async || {
            Ok(match mortal.is_dead() {
                true => Some(true),
                false => settled(harness).await?.then_some(false),
            })
        })
        .await?;
    harness.restart();
    harness
        .until("the next controller finishes", async || Ok(settled(harness).await?.then_some(())))
        .await
        .map_err(|error| error.context(format!("{step:?} killed at call {last}, acted: {acts}")))?;
    // Back to nothing for the next round.
    if !matches!(step, Step::Delete) {
        harness.delete(at.0, at.1, at.2).await?;
        harness.gone(at.0, at.1, at.2).await?;
    }
    assert_eq!(owned(harness).await?, BTreeSet::new(), "{step:?} killed at call {last} leaves orphans");
    assert!(harness.config_map("m-kept").await?.is_some(), "what is to be retained is");
    harness.delete("v1", "ConfigMap", "m-kept").await?;
    Ok(died)
}

async fn die_everywhere(step: Step) -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    harness.apply_json(&graph()).await?;
    harness.definition("model", "Active").await?;
    let mut calls = 0;
    for last in 1..200 {
        let before = die_at(&mut harness, step, last, false).await?;
        let after = die_at(&mut harness, step, last, true).await?;
        if !before && !after {
            break;
        }
        calls = last;
    }
    // The definition's own calls come first; a step has calls of its own beyond them.
    assert!((10..199).contains(&calls), "{calls} calls");
    Ok(())
}

#[tokio::test]
async fn killed_at_any_call_of_a_creation_it_converges() -> anyhow::Result<()> {
    die_everywhere(Step::Create).await
}

#[tokio::test]
async fn killed_at_any_call_of_an_update_it_converges() -> anyhow::Result<()> {
    die_everywhere(Step::Update).await
}

#[tokio::test]
async fn killed_at_any_call_of_a_deletion_it_leaves_no_orphan() -> anyhow::Result<()> {
    die_everywhere(Step::Delete).await
}
