//! Leader election: one of several managers runs a controller, whatever happens to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use orlop_controllers::runtime::{LeaderElection, Manager, candidate_name};
use orlop_test::Server;
use support::{eventually, failing};
use tokio::sync::oneshot;

/// Names of the managers whose controller runs now. Never more than one.
type Running = Arc<Mutex<Vec<String>>>;

/// Marks a controller as running for as long as it lives.
struct Mark(Running, String);

impl Mark {
    fn new(running: Running, name: String) -> Self {
        let mut names = running.lock().unwrap();
        assert!(names.is_empty(), "{name} starts while {names:?} runs");
        names.push(name.clone());
        drop(names);
        Self(running, name)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.lock().unwrap().retain(|name| *name != self.1);
    }
}

/// Starts a manager of one controller. Returns what stops it.
fn start(client: Client, name: &str, running: &Running) -> oneshot::Sender<()> {
    start_with_lease(client, name, running, Duration::from_secs(3))
}

fn start_with_lease(
    client: Client,
    name: &str,
    running: &Running,
    lease_duration: Duration,
) -> oneshot::Sender<()> {
    let settings = LeaderElection {
        lease_duration,
        renew_deadline: lease_duration * 2 / 3,
        retry_period: Duration::from_millis(200),
        ..LeaderElection::new(name)
    };
    let mut manager = Manager::new(orlop_test::for_controllers(client)).with_leader_election(Some(settings));
    let (running, name) = (running.clone(), name.to_owned());
    manager.register("test-controller", move |_| {
        let (running, name) = (running.clone(), name.clone());
        async move {
            let _mark = Mark::new(running, name);
            std::future::pending::<()>().await;
        }
    });
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(manager.run(async move { drop(stopped.await) }));
    stop
}

async fn wait_for(running: &Running, name: &str) {
    eventually(name, || async { running.lock().unwrap().contains(&name.to_owned()).then_some(()) }).await;
}

async fn lease(client: &Client) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    leases.get("orlop-test-controller").await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn released_lease_is_taken_over_before_it_expires() {
    // Far longer than this test waits for anything.
    const LEASE: Duration = Duration::from_secs(600);
    let server = Server::with_controllers(&[]).await.unwrap();
    let (client, running) = (server.client(), Running::default());
    let first = start_with_lease(client.clone(), "first", &running, LEASE);
    wait_for(&running, "first").await;
    let second = start_with_lease(client.clone(), "second", &running, LEASE);
    let spec = lease(&client).await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("first"), Some(600)));
    assert!(spec.acquire_time.is_some() && spec.renew_time.is_some());
    let acquired = spec.renew_time.unwrap().0;
    eventually("a renewal", || async {
        (lease(&client).await.renew_time.unwrap().0 > acquired).then_some(())
    })
    .await;
    assert_eq!(*running.lock().unwrap(), ["first"], "the candidate waits");
    first.send(()).unwrap();
    wait_for(&running, "second").await;
    let spec = lease(&client).await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("second"), Some(1)));
    second.send(()).unwrap();
    eventually("the release", || async {
        lease(&client).await.holder_identity.is_some_and(|holder| holder.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn leader_that_cannot_renew_stops_before_another_starts() {
    let server = Server::with_controllers(&[]).await.unwrap();
    let (client, running) = (server.client(), Running::default());
    let partitioned = Arc::new(AtomicBool::new(false));
    let cut = partitioned.clone();
    let (first_client, _) = failing(client.clone(), move |_| cut.load(Ordering::Relaxed));
    let first = start(first_client, "first", &running);
    wait_for(&running, "first").await;
    let second = start(client.clone(), "second", &running);
    partitioned.store(true, Ordering::Relaxed);
    let began = Instant::now();
    // Mark asserts that the first has stopped by then.
    wait_for(&running, "second").await;
    assert!(began.elapsed() > Duration::from_secs(1), "the lease had to expire: {:?}", began.elapsed());
    partitioned.store(false, Ordering::Relaxed);
    // The first is a candidate again.
    second.send(()).unwrap();
    wait_for(&running, "first").await;
    first.send(()).unwrap();
}

/// Processes of two pods have the same id.
#[tokio::test]
async fn candidates_on_one_host_with_one_process_id_are_told_apart() {
    let server = Server::with_controllers(&[]).await.unwrap();
    let (client, running) = (server.client(), Running::default());
    let (one, other) = (candidate_name(), candidate_name());
    assert_ne!(one, other);
    let first = start(client.clone(), &one, &running);
    wait_for(&running, &one).await;
    let acquired = lease(&client).await.renew_time.unwrap().0;
    // Mark asserts that it does not run beside the first.
    let second = start(client.clone(), &other, &running);
    eventually("renewals", || async {
        let spec = lease(&client).await;
        (spec.renew_time.unwrap().0 > acquired).then_some(())
    })
    .await;
    assert_eq!(*running.lock().unwrap(), [one]);
    first.send(()).unwrap();
    wait_for(&running, &other).await;
    second.send(()).unwrap();
}
