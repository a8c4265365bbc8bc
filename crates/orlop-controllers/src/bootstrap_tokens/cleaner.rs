//! Deletes bootstrap tokens that have expired.

use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use super::{NAMESPACE, TYPE, expiry, watch};
use crate::{
    runtime::{Action, Context},
    status::{is_conflict, is_not_found},
    workload::time::until,
};

pub(super) async fn run(context: Context) {
    let queue = context.work_queue::<String>();
    let client = context.client.clone();
    let added = queue.clone();
    tokio::select! {
        () = watch(&context, |secret| secret.iter().for_each(|secret| added.add(secret.name_any()))) => {}
        () = queue.run(1, |name| reconcile(client.clone(), name)) => {}
    }
}

async fn reconcile(client: Client, name: String) -> orlop_client::Result<Action> {
    let secrets = Api::<Secret>::namespaced(client, NAMESPACE);
    let Some(secret) = secrets.get_opt(&name).await? else { return Ok(Action::Done) };
    let Some(at) = expiry(&secret).filter(|_| secret.type_.as_deref() == Some(TYPE)) else {
        return Ok(Action::Done);
    };
    let now = Timestamp::now();
    if now < at {
        return Ok(Action::After(until(at, now)));
    }
    let preconditions = Preconditions { uid: secret.uid(), resource_version: None };
    match secrets.delete(&name, &DeleteParams::default().preconditions(preconditions)).await {
        Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
        _ => Ok(Action::Done),
    }
}
