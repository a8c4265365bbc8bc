//! Health: named checks, each alone or all together.

use bytes::Bytes;
use http::Response;

use crate::{body::Body, cluster::Cluster, query::Query, verbs::answer};

/// The checks of `/livez`, `/readyz` and `/healthz`.
const CHECKS: &[&str] = &["ping", "log", "etcd"];

/// Answers a health page.
pub(crate) async fn answer(cluster: &Cluster, segments: &[&str], query: &Query) -> Response<Body> {
    let page = segments.first().copied().unwrap_or_default();
    let ready = page == "readyz";
    let mut names: Vec<&str> = CHECKS.to_vec();
    if ready {
        names.extend(["etcd-readiness", "informer-sync", "shutdown"]);
    }
    if let Some(one) = segments.get(1) {
        return match names.contains(one) {
            false => crate::routes::not_found(),
            true if passes(cluster, one).await => text(200, "ok".to_owned()),
            true => text(500, format!("internal server error: {one} failed\n")),
        };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let (mut report, mut failed) = (String::new(), false);
    for name in &names {
        if excluded.contains(name) {
            report.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if passes(cluster, name).await {
            report.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed = true;
            report.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    let unknown: Vec<String> =
        excluded.iter().filter(|name| !names.contains(name)).map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        report.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            unknown.join(", ")
        ));
    }
    match failed {
        true => text(500, format!("{report}{page} check failed\n")),
        false if query.get("verbose").is_some() => text(200, format!("{report}{page} check passed\n")),
        false => text(200, "ok".to_owned()),
    }
}

async fn passes(cluster: &Cluster, name: &str) -> bool {
    match name {
        "etcd" | "etcd-readiness" => cluster.store.revision().await.is_ok(),
        "shutdown" => !cluster.is_closing(),
        _ => true,
    }
}

fn text(code: u16, body: String) -> Response<Body> {
    answer::bytes(code, "text/plain; charset=utf-8", Bytes::from(body))
}
