//! Off-loading of large writes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use support::{call, get, server};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Returns a deployment of about 1 MiB, which takes long to decode and validate.
fn deployment(name: &str, variables: usize) -> serde_json::Value {
    let variable = |number| json!({"name": format!("VARIABLE_{number}"), "value": "a value"});
    let env: Vec<_> = (0..variables).map(variable).collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_answers_promptly_during_cpu_heavy_writes() {
    const WRITERS: usize = 4;
    let (chain, _store) = server().await;
    let done = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    for number in 0..WRITERS {
        let (chain, done) = (chain.clone(), done.clone());
        tokio::spawn(async move {
            let object = deployment(&format!("d{number}"), 20_000);
            let (code, answer) =
                call(&chain, "POST", &format!("{DEPLOYMENTS}?dryRun=All"), Some(&object)).await;
            assert_eq!(code, 201, "{}", answer["message"]);
            done.fetch_add(1, Ordering::Release);
        });
    }
    let mut slowest = Duration::ZERO;
    while done.load(Ordering::Acquire) < WRITERS {
        let asked = Instant::now();
        assert_eq!(get(&chain, "/livez").await.0, 200);
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // On the workers, two writes at a time would block everything for half of the total.
    let total = started.elapsed();
    assert!(slowest < total / 4, "/livez took {slowest:?} of {total:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_write_ends_with_its_deadline() {
    let (chain, _store) = server().await;
    let object = deployment("d", 20_000);
    let path = format!("{DEPLOYMENTS}?timeout=1ms");
    let (code, answer) = call(&chain, "POST", &path, Some(&object)).await;
    assert_eq!((code, &answer["reason"]), (504, &json!("Timeout")), "{}", answer["message"]);
}
