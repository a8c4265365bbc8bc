//! ResourceQuota: charges a write to the quotas of its namespace, in the transaction of the write.
//!
//! The transaction compares the revision of every quota that it charges: usage is never charged twice, nor is it charged
//! for a write that failed, and of several servers on one database none exceeds a quota. Writes of this process in a
//! namespace with quotas take turns, so that they do not fail each other's compares. The quota controller lowers
//! usage again, after deletes (decision 0085).

use orlop_admission::listers::{Listers, RESOURCE_QUOTAS, Resource};
use orlop_api::{object_meta, status::Status};
use orlop_quota::{Evaluator, ResourceList, charge::Refusal};
use orlop_store::{Compare, Comparison, KeyRange, Op, Put, Target};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use super::Request;
use crate::{
    object::now,
    registry::{Found, Kind},
    storage::Contribution,
};

/// Compares and operations that charge a write.
#[derive(Debug, Default)]
pub(super) struct Charge {
    pub(super) contribution: Contribution,
    /// Held until the transaction has been committed.
    _turn: Option<OwnedMutexGuard<()>>,
}

/// Charges a write, or refuses it. `old` is absent on create.
pub(super) async fn charge(request: &Request, object: &Value, old: Option<&Value>) -> Result<Charge, Status> {
    let (cluster, attributes) = (&request.cluster, &request.attributes);
    let namespace = attributes.namespace.as_str();
    if namespace.is_empty() || !cluster.admission().server_plugins().resource_quota {
        return Ok(Charge::default());
    }
    let snapshot = match cluster.listers.loaded(RESOURCE_QUOTAS) {
        Some(snapshot) => snapshot,
        None => cluster.listers.list(RESOURCE_QUOTAS).await?,
    };
    let limited = cluster.limited_resources();
    if limited.is_empty() && (snapshot.is_empty() || snapshot.in_namespace(namespace).next().is_none()) {
        return Ok(Charge::default());
    }
    let Some(evaluator) = Evaluator::of(&attributes.group, &attributes.resource)
        .filter(|evaluator| evaluator.handles(attributes.subresource_name(), object, old))
    else {
        return Ok(Charge::default());
    };
    let turn = cluster.quota_turns.take(namespace).await;
    let Resource { group, version, resource } = RESOURCE_QUOTAS;
    let Some(kind) = cluster.objects.registry.kinds().get(group, version, resource).cloned() else {
        return Ok(Charge::default());
    };
    let mut quotas = Vec::new();
    for quota in snapshot.in_namespace(namespace) {
        let name = object_meta::text(object_meta::of(quota), "name");
        if let Some(found) = cluster.objects.find(&kind, namespace, name).await? {
            quotas.push((kind.read(&found).await?, found));
        }
    }
    let charged = {
        let charge = orlop_quota::Request {
            group: &attributes.group,
            resource: &attributes.resource,
            subresource: attributes.subresource_name(),
            object,
            old,
            limited,
            now: now(),
        };
        let quotas: Vec<&Value> = quotas.iter().map(|(quota, _)| quota).collect();
        orlop_quota::charge(&evaluator, &charge, &quotas)
            .map_err(|refusal| refuse(request, object, refusal))?
    };
    let mut contribution = Contribution::default();
    for ((mut quota, found), used) in quotas.into_iter().zip(charged) {
        let is_unknown = quota.pointer("/status/hard") != quota.pointer("/spec/hard")
            && !evaluator.matching(&ResourceList::of(&quota, "/spec/hard").names()).is_empty();
        if let Some(used) = used {
            quota["status"]["used"] = used.to_value();
        } else if !is_unknown {
            continue;
        }
        // A quota whose usage the controller computes just now is written as it is: the controller may not have seen
        // this object, and has to look again.
        add(request, &kind, &quota, &found, &mut contribution).await?;
    }
    Ok(Charge { contribution, _turn: Some(turn) })
}

async fn add(
    request: &Request,
    kind: &Kind,
    quota: &Value,
    found: &Found,
    contribution: &mut Contribution,
) -> Result<(), Status> {
    let name = object_meta::text(object_meta::of(quota), "name");
    let key = request.cluster.objects.key(kind, &request.attributes.namespace, name);
    let encoded = kind.write(quota).await?;
    let unchanged = Target::Revision(found.revision);
    contribution.compares.push(Compare::new(KeyRange::key(key.clone()), Comparison::Equal, unchanged));
    let put = Put { terms: encoded.terms, keep_lease: true, ..Put::new(key, encoded.bytes) };
    contribution.ops.push(Op::Put(put));
    Ok(())
}

fn refuse(request: &Request, object: &Value, refusal: Refusal) -> Status {
    match refusal {
        Refusal::Forbidden(why) => {
            let name = object_meta::text(object_meta::of(object), "name");
            Status::forbidden(&request.kind.group_resource(), name, &why)
        }
        Refusal::Plain(why) => Status::plain(why),
    }
}
