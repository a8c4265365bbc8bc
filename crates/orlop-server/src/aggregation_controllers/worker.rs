//! Checks the availability of one extension API server, and keeps its documents.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use orlop_aggregator::{
    ApiService,
    api_service::Availability,
    availability,
    client::{Client, Unreachable},
};
use orlop_api::user::UserInfo;
use orlop_auth::webhook::authority;
use tokio::{sync::watch, time::Instant};

use super::{documents::Fetcher, service, set_availability};
use crate::{aggregation::Backend, chain::Chain};

/// Interval of checks, which is also the longest pause after a failure.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of fetching documents.
const FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// First pause after a failed check and after a failed fetch. Each further one is twice as long.
const CHECK_BACKOFF: Duration = Duration::from_millis(100);
const FETCH_BACKOFF: Duration = Duration::from_millis(500);
/// Requests of a check. One success is enough.
const ATTEMPTS: usize = 5;
/// Limit on each.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the Service is listed again after an error.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Something that is done again and again, more slowly while it fails.
#[derive(Debug)]
struct Schedule {
    due: Instant,
    failures: u32,
    backoff: Duration,
    interval: Duration,
}

impl Schedule {
    fn new(backoff: Duration, interval: Duration) -> Self {
        Self { due: Instant::now(), failures: 0, backoff, interval }
    }

    fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    fn now(&mut self) {
        (self.due, self.failures) = (Instant::now(), 0);
    }

    fn done(&mut self, is_success: bool) {
        self.failures = if is_success { 0 } else { self.failures + 1 };
        let pause = match self.failures {
            0 => self.interval,
            failures => self.backoff.saturating_mul(1 << (failures - 1).min(16)).min(self.interval),
        };
        self.due = Instant::now() + pause;
    }
}

/// Keeps the availability and the documents of a server, until the task is aborted.
pub(super) async fn run(chain: Chain, backend: Arc<Backend>) {
    let cluster = chain.cluster().clone();
    // Dropped with the task, which ends the watches.
    let _followers: watch::Sender<bool> = loop {
        match service::follow(&cluster.objects, &backend).await {
            Ok(followers) => break followers,
            Err(status) => {
                tracing::warn!(
                    message = status.message,
                    service = backend.key.name,
                    "cannot follow a Service"
                );
                for service in services(&chain, &backend) {
                    let found = availability::unreadable(&backend.key, &status.message);
                    let _ = set_availability(&chain, &service, &found).await;
                }
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    };
    let (mut states, mut catalogs) = (backend.states(), cluster.aggregator.changes());
    let mut checks = Schedule::new(CHECK_BACKOFF, CHECK_INTERVAL);
    let mut fetches = Schedule::new(FETCH_BACKOFF, FETCH_INTERVAL);
    let mut fetcher = Fetcher::default();
    let mut written: HashMap<String, Availability> = HashMap::new();
    let mut has_new_catalog = true;
    loop {
        states.mark_unchanged();
        catalogs.mark_unchanged();
        let all = services(&chain, &backend);
        let is_new = |service: &Arc<ApiService>| {
            written.get(&service.name).is_none_or(|written| *written != service.availability)
        };
        // Only what somebody else wrote is checked at once: a write that failed waits for its turn.
        if std::mem::take(&mut has_new_catalog) && all.iter().any(is_new) {
            checks.now();
        }
        if fetcher.is_missing(&all) {
            fetches.now();
        }
        if checks.is_due() {
            let mut is_success = true;
            for service in &all {
                let found = check(&backend, service).await;
                if written.get(&service.name).is_none_or(|before| before.status != found.status) {
                    fetches.now();
                }
                let is_written = set_availability(&chain, service, &found).await.is_ok();
                is_success &= is_written && found.status == "True";
                written.insert(service.name.clone(), found);
            }
            written.retain(|name, _| all.iter().any(|service| service.name == *name));
            checks.done(is_success);
        }
        if fetches.is_due() {
            let is_success = fetcher.fetch(&backend, &all).await;
            fetches.done(is_success);
        }
        tokio::select! {
            changed = states.changed() => match changed {
                Ok(()) => checks.now(),
                Err(_) => return,
            },
            changed = catalogs.changed() => match changed {
                Ok(()) => has_new_catalog = true,
                Err(_) => return,
            },
            () = tokio::time::sleep_until(checks.due.min(fetches.due)) => {}
        }
    }
}

/// Returns the APIServices of a server.
fn services(chain: &Chain, backend: &Backend) -> Vec<Arc<ApiService>> {
    let catalog = chain.cluster().aggregator.catalog();
    let own = catalog.remotes().filter(|remote| remote.backend.key == backend.key);
    let mut own: Vec<_> = own.map(|remote| remote.service.clone()).collect();
    own.sort_by(|one, other| one.name.cmp(&other.name));
    own
}

/// Returns the condition of an APIService.
async fn check(backend: &Backend, service: &ApiService) -> Availability {
    let state = backend.states().borrow().clone().unwrap_or_default();
    if let Some(found) = availability::check_service(&backend.key, &state) {
        return found;
    }
    let client = backend.client();
    let mut attempts: FuturesUnordered<_> =
        (0..ATTEMPTS).map(|_| attempt(backend, &client, service)).collect();
    let mut last = String::new();
    while let Some(outcome) = attempts.next().await {
        match outcome {
            Ok(()) => return availability::passed(),
            Err(why) => last = why,
        }
    }
    availability::failed_discovery(last)
}

/// Asks for the discovery document of a group version, which every API server must have.
async fn attempt(backend: &Backend, client: &Client, service: &ApiService) -> Result<(), String> {
    let address = backend.resolve().await?;
    let (host, port) = &address;
    let path = service.path();
    let url = format!("https://{}{path}", authority(host, *port));
    let user = UserInfo {
        name: "system:kube-aggregator".to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..UserInfo::default()
    };
    let probed = tokio::time::timeout(ATTEMPT_TIMEOUT, client.probe(&address, &path, &user)).await;
    let failing = |why: String| Err(format!("failing or missing response from {url}: {why}"));
    match probed {
        Ok(Ok(status)) if status.is_success() => Ok(()),
        Ok(Ok(status)) => failing(format!("bad status from {url}: {}", status.as_u16())),
        Ok(Err(Unreachable(why))) => failing(format!("Get {url:?}: {why}")),
        Err(_) => failing(format!(
            "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}
