//! Health: named checks, each alone or all together, as Kubernetes' probes and operators ask for them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use orlop_api::status::Status;

use crate::{
    cluster::Cluster,
    http::{
        body::Body,
        query::Query,
        response::{self, not_found},
    },
};

/// How long the database may take to say where it is.
const STORE: Duration = Duration::from_secs(2);

/// The step of starting after which every path that is served is known.
pub const ROUTES: &str = "crd-informer-synced";

/// How far the server has come: what of its start is done, and whether it is about to stop.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// Steps of starting, in order, and whether each is done.
    steps: Vec<(&'static str, bool)>,
    stopping: bool,
}

impl Health {
    /// Says which steps starting has; each is a check that fails until it is done.
    pub(crate) fn expect(&self, steps: &[&'static str]) {
        self.progress().steps.extend(steps.iter().map(|step| (*step, false)));
    }

    /// Says that a step is done.
    pub(crate) fn done(&self, step: &str) {
        self.progress().steps.iter_mut().filter(|(name, _)| *name == step).for_each(|(_, done)| *done = true);
    }

    /// Says that the server is about to stop: it still answers, and asks not to be sent more.
    pub(crate) fn stop(&self) {
        self.progress().stopping = true;
    }

    /// Whether every path that will be served is served. Until then, what is not found may be yet to come.
    pub(crate) fn knows_every_route(&self) -> bool {
        self.progress().steps.iter().all(|(name, done)| *name != ROUTES || *done)
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every check of a page by name, and whether it passes.
    pub(crate) async fn checks(&self, cluster: &Cluster, page: &str) -> Vec<(String, bool)> {
        let store = tokio::time::timeout(STORE, cluster.objects.store.revision());
        let store = matches!(store.await, Ok(Ok(_)));
        let mut checks =
            vec![("ping".to_owned(), true), ("log".to_owned(), true), ("etcd".to_owned(), store)];
        let ready = page == "readyz";
        if ready {
            checks.push(("etcd-readiness".to_owned(), store));
            checks.push(("informer-sync".to_owned(), true));
        }
        let progress = self.progress();
        checks.extend(progress.steps.iter().map(|(name, done)| (format!("poststarthook/{name}"), *done)));
        if ready {
            checks.push(("shutdown".to_owned(), !progress.stopping && !cluster.is_closing()));
        }
        checks
    }
}

/// What a client is told about a path that is not known yet. A false "not found" would make controllers
/// delete what they believe gone.
pub(crate) fn not_installed_yet() -> Status {
    Status::service_unavailable(
        "the request has been made before all known HTTP paths have been installed, please try again",
    )
    .retry_after(5)
}

/// Answers `/healthz`, `/livez` and `/readyz`, or one check of theirs.
pub(crate) async fn answer(
    health: &Health,
    cluster: &Cluster,
    segments: &[&str],
    query: &Query,
) -> Response<Body> {
    let [page, check @ ..] = segments else { return not_found() };
    let checks = health.checks(cluster, page).await;
    if !check.is_empty() {
        let name = check.join("/");
        return match checks.iter().find(|(known, _)| *known == name) {
            None => not_found(),
            Some((_, true)) => text(200, "ok".to_owned()),
            Some((_, false)) => text(500, format!("internal server error: {name} is not healthy\n")),
        };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let (mut report, mut failed) = (String::new(), Vec::new());
    for (name, passes) in &checks {
        if excluded.contains(&name.as_str()) {
            report.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if *passes {
            report.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed.push(name.as_str());
            report.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    let known = |name: &&&str| checks.iter().any(|(check, _)| check == **name);
    let unknown: Vec<String> =
        excluded.iter().filter(|name| !known(name)).map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        report.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    if !failed.is_empty() {
        tracing::info!(page, failed = failed.join(","), "health check failed");
        return text(500, format!("{report}{page} check failed\n"));
    }
    match query.get("verbose") {
        Some(_) => text(200, format!("{report}{page} check passed\n")),
        None => text(200, "ok".to_owned()),
    }
}

fn text(code: u16, body: String) -> Response<Body> {
    let mut response = response::bytes(code, "text/plain; charset=utf-8", Bytes::from(body));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
