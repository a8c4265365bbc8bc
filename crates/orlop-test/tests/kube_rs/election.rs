//! Leader election with a Lease.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{Timestamp, ToSpan},
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use orlop_test::Server;

use crate::refusal;

const SECONDS: i32 = 15;

fn held_by(holder: &str, since: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta { name: Some("leader".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(SECONDS),
            renew_time: Some(MicroTime(since)),
            ..LeaseSpec::default()
        }),
    }
}

/// Tries to lead; whether it does.
async fn campaign(leases: &Api<Lease>, candidate: &str) -> kube::Result<bool> {
    let now = Timestamp::now();
    let Some(current) = leases.get_opt("leader").await? else {
        return match leases.create(&PostParams::default(), &held_by(candidate, now)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            created => created.map(|_| true),
        };
    };
    let spec = current.spec.clone().unwrap_or_default();
    let is_mine = spec.holder_identity.as_deref() == Some(candidate);
    let is_over = spec.renew_time.is_none_or(|renewed| renewed.0 + i64::from(SECONDS).seconds() < now);
    if !is_mine && !is_over {
        return Ok(false);
    }
    let mut wanted = held_by(candidate, now);
    wanted.metadata.resource_version = current.resource_version();
    match leases.replace("leader", &PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        replaced => replaced.map(|_| true),
    }
}

#[tokio::test]
async fn lease_election_has_one_leader() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let leases = Api::<Lease>::default_namespaced(server.client());
    let candidates: Vec<String> = (0..8).map(|number| format!("candidate-{number}")).collect();
    let elected =
        futures_util::future::try_join_all(candidates.iter().map(|name| campaign(&leases, name))).await?;
    assert_eq!(elected.iter().filter(|leads| **leads).count(), 1, "{elected:?}");
    let leader = leases.get("leader").await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    assert!(campaign(&leases, &leader).await?, "a leader stays");

    // The leader falls silent, and everybody wants its place.
    let mut silent = held_by(&leader, Timestamp::now() - 60.seconds());
    silent.metadata.resource_version = leases.get("leader").await?.resource_version();
    leases.replace("leader", &PostParams::default(), &silent).await?;
    let elected =
        futures_util::future::try_join_all(candidates.iter().map(|name| campaign(&leases, name))).await?;
    assert_eq!(elected.iter().filter(|leads| **leads).count(), 1, "{elected:?}");

    // A lease is never replaced by somebody who has not seen it.
    let status =
        refusal(leases.replace("leader", &PostParams::default(), &held_by("blind", Timestamp::now())).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{}", status.message);
    assert!(status.message.contains("metadata.resourceVersion: Invalid value"), "{}", status.message);
    Ok(())
}
