//! Requests that cost a server most: two clients send each, again and again.

use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::{Reads, Target};
use crate::{api::CONFIG_MAPS, client::Client, report::Report};

/// Clients that attack at once: one for each processor of a small machine.
const ATTACKERS: usize = 2;
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// One request.
struct Call {
    method: &'static str,
    path: String,
    media_type: &'static str,
    body: Bytes,
}

impl Call {
    fn new(method: &'static str, path: impl Into<String>, media_type: &'static str, body: &Value) -> Self {
        Self { method, path: path.into(), media_type, body: body.to_string().into() }
    }

    async fn send(&self, client: &Client) -> anyhow::Result<(u16, Bytes)> {
        client.whole(self.method, &self.path, self.media_type, self.body.clone()).await
    }
}

/// An attack: requests that prepare it, and the one that is repeated.
struct Attack {
    name: String,
    prepare: Vec<Call>,
    repeat: Call,
}

/// Makes an attack of a size.
type MakeAttack = fn(usize) -> Attack;

/// Sends every attack in each of its sizes.
pub(super) async fn run(report: &mut Report, target: &Target) -> anyhow::Result<()> {
    let sizes: [(MakeAttack, [usize; 2]); 8] = [
        (strategic_merge, [1_000, 8_000]),
        (json_patch, [1_000, 10_000]),
        (apply_conflicts, [3_000, 20_000]),
        (refused_patterns, [60, 600]),
        (accepted_patterns, [2_500, 20_000]),
        (costly_rule, [1_000, 20_000]),
        (many_fields, [5_000, 50_000]),
        (nested_arrays, [100_000, 1_400_000]),
    ];
    for (attack, sizes) in sizes {
        for size in sizes {
            measure(report, target, attack(size)).await?;
        }
    }
    Ok(())
}

async fn measure(report: &mut Report, target: &Target, attack: Attack) -> anyhow::Result<()> {
    let client = Client::connect(&target.server.kubeconfig, ATTACKERS).await?;
    for call in &attack.prepare {
        let (code, body) = call.send(&client).await.with_context(|| format!("preparing {}", attack.name))?;
        anyhow::ensure!(code < 300, "preparing {}: {code}: {}", attack.name, String::from_utf8_lossy(&body));
    }
    let alone = target.alone().await;
    let reads = Reads::start(target.polite.clone());
    let (started, processor) = (Instant::now(), target.server.cpu_seconds());
    let (repeat, time) = (std::sync::Arc::new(attack.repeat), target.time);
    let mut attackers = JoinSet::new();
    for _ in 0..ATTACKERS {
        let (client, call) = (client.clone(), repeat.clone());
        attackers.spawn(async move {
            let mut latencies = Vec::new();
            let mut code = 0;
            // Once at least, however long it takes.
            while latencies.is_empty() || started.elapsed() < time {
                let begun = Instant::now();
                (code, _) = call.send(&client).await?;
                latencies.push(begun.elapsed());
            }
            anyhow::Ok((code, latencies))
        });
    }
    let (mut code, mut latencies) = (0, Vec::new());
    while let Some(attacker) = attackers.join_next().await {
        let (last, more) = attacker??;
        code = last;
        latencies.extend(more);
    }
    let processor = target.server.cpu_seconds() - processor;
    let beside = reads.stop().await;
    latencies.sort_unstable();
    let sent = latencies.len();
    let name = format!("{}, {} KiB ({code})", attack.name, repeat.body.len() >> 10);
    report.alone(format!("abuse: {name}: processor time"), "ms", processor * 1e3 / sent as f64);
    report.alone(format!("abuse: {name}: slowest answer"), "ms", latencies[sent - 1].as_secs_f64() * 1e3);
    target.report_polite(report, &name, &alone, &beside);
    report.alone(format!("abuse: {name}: RSS"), "MiB", target.server.resident_mib());
    Ok(())
}

/// A strategic merge of a list over one of the same length, half of it new.
fn strategic_merge(items: usize) -> Attack {
    let variables = |range: std::ops::Range<usize>, value: &str| {
        let variables: Vec<Value> = range.map(|n| json!({"name": format!("E{n}"), "value": value})).collect();
        json!([{"name": "c", "image": "i", "env": variables}])
    };
    let name = format!("merge-{items}");
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": variables(0..items, "a")}}},
    });
    let patch =
        json!({"spec": {"template": {"spec": {"containers": variables(items / 2..items * 3 / 2, "b")}}}});
    Attack {
        name: format!("strategic merge of {items} over {items} items"),
        prepare: vec![Call::new("POST", DEPLOYMENTS, JSON, &deployment)],
        repeat: Call::new("PATCH", format!("{DEPLOYMENTS}/{name}?dryRun=All"), STRATEGIC, &patch),
    }
}

/// A JSON patch of many operations on a large document.
fn json_patch(operations: usize) -> Attack {
    let name = format!("patch-{operations}");
    let data: Map<_, _> = (0..30_000).map(|n| (format!("k{n}"), "v".into())).collect();
    let operations: Vec<Value> =
        (0..operations).map(|n| json!({"op": "add", "path": format!("/data/a{n}"), "value": "x"})).collect();
    Attack {
        name: format!("JSON patch of {} operations on 30000 fields", operations.len()),
        prepare: vec![Call::new("POST", CONFIG_MAPS, JSON, &config_map(&name, data))],
        repeat: Call::new(
            "PATCH",
            format!("{CONFIG_MAPS}/{name}?dryRun=All"),
            JSON_PATCH,
            &json!(operations),
        ),
    }
}

/// An apply of fields that another manager owns.
fn apply_conflicts(fields: usize) -> Attack {
    let name = format!("apply-{fields}");
    let object =
        |value: &str| config_map(&name, (0..fields).map(|n| (format!("k{n}"), value.into())).collect());
    let path = format!("{CONFIG_MAPS}/{name}?fieldManager=");
    Attack {
        name: format!("apply with {fields} conflicts"),
        prepare: vec![Call::new("PATCH", format!("{path}owner"), APPLY, &object("a"))],
        repeat: Call::new("PATCH", format!("{path}other"), APPLY, &object("b")),
    }
}

/// A definition with patterns that are too large to compile.
fn refused_patterns(patterns: usize) -> Attack {
    let field = |n: usize| (format!("p{n}"), json!({"type": "string", "pattern": r"(\pL|\pN|.){1,900}"}));
    let definition = definition(
        "refused",
        json!({"type": "object", "properties": (0..patterns).map(field).collect::<Map<_, _>>()}),
    );
    Attack {
        name: format!("definition with {patterns} patterns to refuse"),
        prepare: Vec::new(),
        repeat: Call::new("POST", DEFINITIONS, JSON, &definition),
    }
}

/// Objects that match many patterns.
fn accepted_patterns(patterns: usize) -> Attack {
    let plural = format!("patterns{patterns}");
    let field = |n: usize| (format!("p{n}"), json!({"type": "string", "pattern": format!("^p{n}-[a-z]+$")}));
    let schema = json!({"type": "object", "properties": (0..patterns).map(field).collect::<Map<_, _>>()});
    let value = |n: usize| (format!("p{n}"), format!("p{n}-x").into());
    Attack {
        name: format!("object of {patterns} patterns"),
        prepare: vec![Call::new("POST", DEFINITIONS, JSON, &definition(&plural, schema))],
        repeat: create_custom(&plural, (0..patterns).map(value).collect::<Map<_, _>>().into()),
    }
}

/// Objects whose rule compares every item of a list with every other, until its budget is spent.
fn costly_rule(items: usize) -> Attack {
    let plural = format!("rules{items}");
    let schema = json!({"type": "object", "properties": {"list": {
        "type": "array", "maxItems": 100_000, "items": {"type": "string", "maxLength": 10},
        "x-kubernetes-validations": [{"rule": "self.exists(a, a == 'none') || self.size() >= 0"}],
    }}});
    let list: Vec<Value> = (0..items).map(|n| format!("i{n}").into()).collect();
    Attack {
        name: format!("rule over {items} items"),
        prepare: vec![Call::new("POST", DEFINITIONS, JSON, &definition(&plural, schema))],
        repeat: create_custom(&plural, json!({"list": list})),
    }
}

/// A create with very many fields.
fn many_fields(fields: usize) -> Attack {
    let data = (0..fields).map(|n| (format!("k{n}"), "v".into())).collect();
    Attack {
        name: format!("create of {fields} fields"),
        prepare: Vec::new(),
        repeat: Call::new("POST", format!("{CONFIG_MAPS}?dryRun=All"), JSON, &config_map("fields", data)),
    }
}

/// A body that is nothing but brackets.
fn nested_arrays(depth: usize) -> Attack {
    let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    Attack {
        name: format!("{depth} nested arrays"),
        prepare: Vec::new(),
        repeat: Call { method: "POST", path: CONFIG_MAPS.to_owned(), media_type: JSON, body: body.into() },
    }
}

fn config_map(name: &str, data: Map<String, Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn create_custom(plural: &str, spec: Value) -> Call {
    let object = json!({
        "apiVersion": "abuse.example.com/v1", "kind": kind(plural), "metadata": {"name": "x"}, "spec": spec,
    });
    let path = format!("/apis/abuse.example.com/v1/namespaces/default/{plural}?dryRun=All");
    Call::new("POST", path, JSON, &object)
}

fn kind(plural: &str) -> String {
    let (first, rest) = plural.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

fn definition(plural: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.abuse.example.com")},
        "spec": {
            "group": "abuse.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind(plural)},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}
