//! Locks and elections by etcd's services.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use orlop_etcd::{
    Client, Options, Server,
    pb::{
        etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, RangeRequest},
        v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest},
        v3lockpb::{LockRequest, UnlockRequest},
    },
};
use orlop_store::{Config, Endpoint, Store};
use tokio::time::timeout;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(20);

async fn client() -> Client {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    Client::in_process(&Server::new(store, Options::default()).await.unwrap()).await.unwrap()
}

async fn lease(client: &Client) -> i64 {
    let request = LeaseGrantRequest { ttl: 600, id: 0 };
    client.lease.clone().lease_grant(request).await.unwrap().into_inner().id
}

fn lock_request(lease: i64) -> LockRequest {
    LockRequest { name: "job".into(), lease }
}

/// Waits until there are so many candidates.
async fn wait_for_candidates(client: &Client, count: i64) {
    let request =
        RangeRequest { key: "job/".into(), range_end: "job0".into(), count_only: true, ..Default::default() };
    let counted = async {
        while client.kv.clone().range(request.clone()).await.unwrap().into_inner().count != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, counted).await.unwrap();
}

#[tokio::test]
async fn lock_is_handed_over_in_order() {
    let client = client().await;
    let (first, second) = (lease(&client).await, lease(&client).await);
    let held = client.lock.clone().lock(lock_request(first)).await.unwrap().into_inner();
    assert_eq!(held.key, format!("job/{first:x}"));
    let again = client.lock.clone().lock(lock_request(first)).await.unwrap().into_inner();
    assert_eq!(again.key, held.key, "the holder's lease has it already");
    let waiting = tokio::spawn({
        let mut lock = client.lock.clone();
        async move { lock.lock(lock_request(second)).await.unwrap().into_inner().key }
    });
    wait_for_candidates(&client, 2).await;
    assert!(!waiting.is_finished());
    client.lock.clone().unlock(UnlockRequest { key: held.key }).await.unwrap();
    assert_eq!(timeout(DEADLINE, waiting).await.unwrap().unwrap(), format!("job/{second:x}"));
    client.lease.clone().lease_revoke(LeaseRevokeRequest { id: second }).await.unwrap();
    let third = client.lock.clone().lock(lock_request(0)).await.unwrap().into_inner();
    assert!(third.key.starts_with(b"job/"), "it gets a lease of its own");
}

#[tokio::test]
async fn waiter_that_goes_away_is_withdrawn() {
    let client = client().await;
    let (first, second) = (lease(&client).await, lease(&client).await);
    client.lock.clone().lock(lock_request(first)).await.unwrap();
    let waiting = tokio::spawn({
        let mut lock = client.lock.clone();
        async move { lock.lock(lock_request(second)).await.map(drop) }
    });
    wait_for_candidates(&client, 2).await;
    waiting.abort();
    wait_for_candidates(&client, 1).await;
    let missing = client.lock.clone().lock(lock_request(12345)).await.unwrap_err();
    assert_eq!(missing.message(), "etcdserver: requested lease not found");
}

#[tokio::test]
async fn elections_have_one_leader_that_is_observed() {
    let client = client().await;
    let (first, second) = (lease(&client).await, lease(&client).await);
    let campaign = |lease: i64, value: &'static str| {
        let mut election = client.election.clone();
        async move {
            let request = CampaignRequest { name: "job".into(), lease, value: value.into() };
            election.campaign(request).await.unwrap().into_inner().leader.unwrap()
        }
    };
    let name = || LeaderRequest { name: "job".into() };
    let nobody = client.election.clone().leader(name()).await.unwrap_err();
    assert_eq!((nobody.code(), nobody.message()), (Code::Unknown, "election: no leader"));
    let mut observed = client.election.clone().observe(name()).await.unwrap().into_inner();
    let mut next = async || {
        let response = timeout(DEADLINE, observed.message()).await.unwrap().unwrap().unwrap();
        String::from_utf8(response.kv.unwrap().value.to_vec()).unwrap()
    };
    let leader = campaign(first, "one").await;
    assert_eq!(next().await, "one");
    let waiting = tokio::spawn(campaign(second, "two"));
    wait_for_candidates(&client, 2).await;
    let proclaim = |leader: Option<LeaderKey>, value: &'static str| {
        let mut election = client.election.clone();
        async move { election.proclaim(ProclaimRequest { leader, value: value.into() }).await }
    };
    proclaim(Some(leader.clone()), "one again").await.unwrap();
    assert_eq!(next().await, "one again");
    let resign = ResignRequest { leader: Some(leader.clone()) };
    client.election.clone().resign(resign).await.unwrap();
    let elected = timeout(DEADLINE, waiting).await.unwrap().unwrap();
    assert_eq!(next().await, "two");
    let found = client.election.clone().leader(name()).await.unwrap().into_inner().kv.unwrap();
    assert_eq!((found.key, found.create_revision), (elected.key, elected.rev));
    let late = proclaim(Some(leader), "late").await.unwrap_err();
    assert_eq!((late.code(), late.message()), (Code::Unknown, "election: not leader"));
    let unnamed = proclaim(None, "x").await.unwrap_err();
    assert_eq!(unnamed.message(), "\"leader\" field must be provided");
}
