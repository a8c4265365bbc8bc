//! Health checks: each by itself or all together, as Kubernetes' probes ask for them.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
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

/// Timeout of the database check.
const STORE: Duration = Duration::from_secs(2);
/// Timeout of a check of another part of the process.
const ADDITIONAL: Duration = Duration::from_secs(10);

/// Step of the start after which all routes are known.
pub const ROUTES: &str = "crd-informer-synced";

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It passes.
    Passed,
    /// It fails, with a reason that anybody may read; `None` to withhold it.
    Failed(Option<String>),
}

impl From<bool> for Outcome {
    fn from(passes: bool) -> Self {
        if passes { Self::Passed } else { Self::Failed(None) }
    }
}

/// Progress of the start and shutdown of the server.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Progress>, Mutex<Vec<Check>>);

/// A health check of another part of the process: its name, and a call that resolves to true if it passes.
#[derive(Clone)]
struct Check(&'static str, CheckCall);

/// Runs a health check.
pub type CheckCall = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.0).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Progress {
    /// Steps of the start, in order, and true for each that is done.
    steps: Vec<(&'static str, bool)>,
    stopping: bool,
}

impl Health {
    /// Declares steps of the start; each is a check that fails until it is done.
    pub(crate) fn expect(&self, steps: &[&'static str]) {
        self.progress().steps.extend(steps.iter().map(|step| (*step, false)));
    }

    /// Adds a check to every page.
    pub(crate) fn add_check(&self, name: &'static str, call: CheckCall) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(Check(name, call));
    }

    /// Completes a step.
    pub(crate) fn done(&self, step: &str) {
        self.progress().steps.iter_mut().filter(|(name, _)| *name == step).for_each(|(_, done)| *done = true);
    }

    /// Fails readiness, since the server is about to shut down.
    pub(crate) fn stop(&self) {
        self.progress().stopping = true;
    }

    /// Returns true once all routes are known. Until then, an unknown path may exist later.
    pub(crate) fn knows_every_route(&self) -> bool {
        self.progress().steps.iter().all(|(name, done)| *name != ROUTES || *done)
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the checks of a page. Returns the name and outcome of each.
    pub(crate) async fn checks(&self, cluster: &Cluster, page: &str) -> Vec<(String, Outcome)> {
        let store = tokio::time::timeout(STORE, cluster.objects.store.revision());
        let store = matches!(store.await, Ok(Ok(_)));
        let mut checks = vec![
            ("ping".to_owned(), Outcome::Passed),
            ("log".to_owned(), Outcome::Passed),
            ("etcd".to_owned(), store.into()),
        ];
        let additional = self.1.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for Check(name, call) in additional {
            let passes = tokio::time::timeout(ADDITIONAL, call()).await.unwrap_or(false);
            checks.push((name.to_owned(), passes.into()));
        }
        let ready = page == "readyz";
        if ready {
            let writable = match cluster.objects.store.health() {
                Ok(()) => store.into(),
                Err(error) => {
                    tracing::warn!(%error, "the store does not accept writes");
                    // Whoever runs the server must learn that the disk is full.
                    Outcome::Failed(Some(error.to_string()))
                }
            };
            checks.push(("etcd-readiness".to_owned(), writable));
            checks.push(("informer-sync".to_owned(), Outcome::Passed));
        }
        let progress = self.progress();
        checks.extend(
            progress.steps.iter().map(|(name, done)| (format!("poststarthook/{name}"), (*done).into())),
        );
        if ready {
            let is_serving = !progress.stopping && !cluster.is_closing();
            checks.push(("shutdown".to_owned(), is_serving.into()));
        }
        checks
    }
}

/// Returns the Status of an unknown path during the start. A false NotFound would make controllers delete what they
/// believe gone.
pub(crate) fn not_installed_yet() -> Status {
    Status::service_unavailable(
        "the request has been made before all known HTTP paths have been installed, please try again",
    )
    .retry_after(5)
}

/// Answers `/healthz`, `/livez` and `/readyz`, or one of their checks.
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
            Some((_, Outcome::Passed)) => text(200, "ok".to_owned()),
            Some((_, Outcome::Failed(reason))) => {
                let reason = reason.clone().unwrap_or_else(|| format!("{name} is not healthy"));
                text(500, format!("internal server error: {reason}\n"))
            }
        };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let (mut report, mut failed) = (String::new(), Vec::new());
    for (name, outcome) in &checks {
        report.push_str(&match outcome {
            _ if excluded.contains(&name.as_str()) => format!("[+]{name} excluded: ok\n"),
            Outcome::Passed => format!("[+]{name} ok\n"),
            Outcome::Failed(reason) => {
                failed.push(name.as_str());
                format!("[-]{name} failed: {}\n", reason.as_deref().unwrap_or("reason withheld"))
            }
        });
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
