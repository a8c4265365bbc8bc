//! Cost of field tracking and apply, compared with a merge patch of the same object.
//!
//! `cargo run --release -p orlop-api --example apply_cost`

use orlop_api::apply::{FieldManager, SingleVersion, TypeRef};
use orlop_api::group_version::GroupVersionKind;
use orlop_api::managed_fields::Filter;
use orlop_api::patch::{merge_patch, strategic_merge_patch};
use orlop_api::schema::{Root, builtin, unknown_fields};
use orlop_api::time::Time;
use orlop_api::{decode, schema};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A Deployment of about 50 KiB: forty containers with environments, ports and mounts.
fn deployment() -> Value {
    let containers: Vec<Value> = (0..40)
        .map(|index| {
            let env: Vec<Value> = (0..10).map(|env| json!({"name": format!("VARIABLE_{env}"), "value": format!("the value of variable {env} in container {index}")})).collect();
            json!({
                "name": format!("container-{index}"), "image": format!("registry.example.com/team/image-{index}:v1.2.{index}"), "imagePullPolicy": "IfNotPresent",
                "args": ["--flag", "--other-flag=value"], "env": env,
                "ports": [{"containerPort": 8000 + index, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/config"}]
            })
        })
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "big", "namespace": "default", "labels": {"app": "big"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "big"}}, "template": {
            "metadata": {"labels": {"app": "big"}},
            "spec": {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}}]}}}
    })
}

fn measure<T>(name: &str, mut work: impl FnMut() -> T) {
    const ROUNDS: u32 = 300;
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed()
        })
        .collect();
    times.sort();
    let microseconds = |index: usize| times[index].as_secs_f64() * 1e6;
    println!(
        "{name:<52} median {:>8.1} us   p99 {:>8.1} us",
        microseconds(times.len() / 2),
        microseconds(times.len() * 99 / 100)
    );
}

fn main() {
    let kind = GroupVersionKind::new("apps", "v1", "Deployment");
    let start = Instant::now();
    let types = builtin::type_count();
    let indexed = start.elapsed();
    let of = builtin::type_of("apps", "v1", "Deployment")
        .map(builtin::TypeEntry::schema)
        .unwrap_or_else(|| std::process::exit(1));
    let resolved = start.elapsed();
    println!(
        "{types} built-in types indexed in {} us, Deployment resolved after {} us; a schema node is {} bytes, a field {}",
        indexed.as_micros(),
        resolved.as_micros(),
        std::mem::size_of::<schema::Schema>(),
        std::mem::size_of::<schema::Field>()
    );
    let versions = SingleVersion { api_version: "apps/v1", of: TypeRef::resource(of) };
    let no_reset: BTreeMap<String, Filter> = BTreeMap::new();
    let fields = FieldManager { kind: &kind, versions: &versions, subresource: "", owned_fields: &no_reset };
    let config = deployment();
    let applied =
        fields.apply(None, &config, "deployer", false, Time::from_unix(1)).unwrap_or_else(|status| {
            eprintln!("{status}");
            std::process::exit(1)
        });
    let mut live = applied.object.into_owned();
    live["metadata"]["uid"] = json!("u");
    live["status"] = json!({"replicas": 3});
    let mut touched = live.clone();
    touched["metadata"]["annotations"] = json!({"note": "x"});
    let live = fields.update(&live, touched, "controller", Time::from_unix(2));
    let body = live.to_string();
    let managed = live["metadata"]["managedFields"].to_string();
    println!(
        "object {} bytes, of which managedFields {} bytes in {} entries\n",
        body.len(),
        managed.len(),
        live["metadata"]["managedFields"].as_array().map_or(0, Vec::len)
    );

    let mut changed = live.clone();
    changed["spec"]["replicas"] = json!(5);
    let patch = json!({"spec": {"replicas": 5}});
    measure("decode JSON (ours: duplicates, depth)", || decode::json(body.as_bytes()));
    measure("decode JSON (serde_json)", || serde_json::from_slice::<Value>(body.as_bytes()));
    measure("clone the object", || live.clone());
    measure("merge patch, one field", || merge_patch(&live, &patch));
    measure("strategic merge patch, one field", || strategic_merge_patch(&live, &patch, of));
    measure("update tracking, one field (clone included)", || {
        fields.update(&live, changed.clone(), "kubectl-scale", Time::from_unix(3))
    });
    measure("update tracking, nothing changed (clone included)", || {
        fields.update(&live, live.clone(), "controller", Time::from_unix(3))
    });
    let mut other = config.clone();
    other["spec"]["replicas"] = json!(5);
    measure("apply, one field changed", || {
        fields.apply(Some(&live), &other, "deployer", false, Time::from_unix(3))
    });
    measure("apply, nothing changed", || {
        fields.apply(Some(&live), &config, "deployer", false, Time::from_unix(3))
    });
    let mut small = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "big"}, "spec": {"replicas": 3}});
    measure("apply of one field by another manager", || {
        fields.apply(Some(&live), &small, "scaler", false, Time::from_unix(3))
    });
    small["spec"]["replicas"] = json!(7);
    measure("apply that conflicts", || {
        fields.apply(Some(&live), &small, "scaler", false, Time::from_unix(3))
    });
    println!();
    let typed = TypeRef::resource(of);
    measure("  step: validate the configuration", || orlop_api::apply::validate(&config, typed, false));
    measure("  step: merge", || orlop_api::apply::merge(&live, &config, typed));
    measure("  step: field set of the configuration", || orlop_api::apply::to_field_set(&config, typed));
    let set = orlop_api::apply::to_field_set(&config, typed).unwrap_or_default();
    measure("  step: write the field set", || orlop_api::managed_fields::Fields::from_set(&set));
    measure("  step: compare", || orlop_api::apply::compare(&live, &changed, typed));
    measure("  step: same set", || {
        let managed = orlop_api::managed_fields::ManagedFields::of(&live).unwrap_or_default();
        managed.entries.values().any(|entry| entry.fields.is(&set))
    });
    measure("  step: compare alike", || orlop_api::apply::compare(&live, &live, typed));
    measure("  step: encode the managers", || {
        orlop_api::managed_fields::ManagedFields::of(&live).unwrap_or_default().encode()
    });
    measure("  step: read the managers", || orlop_api::managed_fields::ManagedFields::of(&live));
    println!();
    measure("unknown fields of a built-in", || unknown_fields(&live, of, Root::Plain));
    measure("type check of a built-in", || schema::check_types(&live, of));
}
