//! Reconciliation of a Server: objects, then phase.

mod objects;
mod rollout;
mod secrets;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::{Value, json};

use self::rollout::Observed;
use crate::{
    api::{API_VERSION, Phase, Server, ServerStatus, StoreKind},
    conditions,
    context::{Context, Error, MANAGER, with_timeout},
};

/// Requeue interval during a rollout. Changes of the Deployment come sooner.
const ROLLOUT_REQUEUE: Duration = Duration::from_secs(5);
/// Requeue interval of a ready server, whose pod may have restarted in place.
const READY_REQUEUE: Duration = Duration::from_secs(30);

pub(crate) async fn reconcile(server: Arc<Server>, context: Arc<Context>) -> Result<Action, Error> {
    if server.metadata.deletion_timestamp.is_some() {
        // Owner references take the rest along.
        return Ok(Action::await_change());
    }
    let namespace = server.namespace().unwrap_or_default();
    let phase = with_timeout(async {
        let observed = match apply_objects(&server, &context, &namespace).await {
            Ok(()) => observe(&server, &context, &namespace).await?,
            Err(error) => rejected(error)?,
        };
        update_status(&server, &context, &namespace, observed).await
    })
    .await?;
    context.reset_backoff(&*server);
    Ok(Action::requeue(if phase == Phase::Ready { READY_REQUEUE } else { ROLLOUT_REQUEUE }))
}

/// Returns phase Error for a server whose objects the API rejects, such as a volume that would shrink. A retry does
/// not help, so the status must say so. Other errors are returned.
fn rejected(error: Error) -> Result<Observed, Error> {
    match error {
        Error::Kube(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Observed::failed("ApplyFailed", status.message))
        }
        error => Err(error),
    }
}

pub(crate) fn error_policy(server: Arc<Server>, error: &Error, context: Arc<Context>) -> Action {
    tracing::warn!(server = server.name_any(), %error, "reconciliation failed");
    context.back_off(&*server)
}

async fn apply_objects(server: &Server, context: &Context, namespace: &str) -> Result<(), Error> {
    let client = &context.client;
    let security = server.security();
    let mut token_digest = None;
    if security.token {
        let secrets = Api::namespaced(client.clone(), namespace);
        token_digest = Some(secrets::ensure_token(server, secrets).await?);
    }
    if security.tls {
        secrets::ensure_tls(server, Api::namespaced(client.clone(), namespace)).await?;
    }
    apply(Api::<ServiceAccount>::namespaced(client.clone(), namespace), &objects::service_account(server))
        .await?;
    if server.spec.store == StoreKind::Rocks {
        let claim = objects::claim(server);
        apply(Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace), &claim).await?;
        let budget = objects::disruption_budget(server);
        apply(Api::<PodDisruptionBudget>::namespaced(client.clone(), namespace), &budget).await?;
    }
    apply(Api::<NetworkPolicy>::namespaced(client.clone(), namespace), &objects::network_policy(server))
        .await?;
    apply(Api::<Service>::namespaced(client.clone(), namespace), &objects::service(server)).await?;
    let deployment = objects::deployment(server, &context.options.image, token_digest.as_deref());
    apply(Api::<Deployment>::namespaced(client.clone(), namespace), &deployment).await
}

async fn apply<K>(api: Api<K>, object: &Value) -> Result<(), Error>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// Observes the Deployment, its pods and the server itself.
async fn observe(server: &Server, context: &Context, namespace: &str) -> Result<Observed, Error> {
    let (client, name) = (&context.client, server.name_any());
    let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(&name).await?;
    if rollout::is_complete(&deployment) {
        // The boot id reveals a restart within the pod.
        let connected = match context.connect(server).await {
            Ok(client) => client.hello().await,
            // Whoever made the Secret must mend it.
            Err(Error::Secret(message)) => return Ok(Observed::failed("SecretInvalid", message)),
            Err(error) => return Err(error),
        };
        return Ok(match connected {
            Ok((boot_id, _)) => Observed::ready(boot_id),
            Err(error) => Observed::in_rollout(format!("the pod is ready but does not answer: {error}")),
        });
    }
    let selector = ListParams::default().labels(&objects::selector(server));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&selector).await?;
    let claim = match server.spec.store {
        StoreKind::Rocks => {
            let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
            claims.get_opt(&objects::claim_name(server)).await?
        }
        StoreKind::Memory => None,
    };
    Ok(rollout::diagnose(&deployment, &pods.items, claim.as_ref()))
}

async fn update_status(
    server: &Server,
    context: &Context,
    namespace: &str,
    observed: Observed,
) -> Result<Phase, Error> {
    let before = server.status.clone().unwrap_or_default();
    let generation = server.metadata.generation;
    let ready = observed.phase == Phase::Ready;
    let mut conditions = before.conditions.clone();
    conditions::set(&mut conditions, "Ready", ready, observed.reason, &observed.message, generation);
    let progressing = observed.phase == Phase::Rollout;
    conditions::set(
        &mut conditions,
        "Progressing",
        progressing,
        observed.reason,
        &observed.message,
        generation,
    );
    let after = ServerStatus {
        phase: Some(observed.phase),
        ready_generation: if ready { generation } else { before.ready_generation },
        message: Some(observed.message.clone()),
        observed_generation: generation,
        boot_id: observed.boot_id.or(before.boot_id.clone()),
        conditions,
    };
    if json!(before) == json!(after) {
        return Ok(observed.phase);
    }
    let patch = json!({ "apiVersion": API_VERSION, "kind": "Server", "status": after });
    let servers: Api<Server> = Api::namespaced(context.client.clone(), namespace);
    servers
        .patch_status(&server.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&patch))
        .await?;
    let reason_before = before.conditions.iter().find(|condition| condition.type_ == "Ready");
    if before.phase != Some(observed.phase)
        || reason_before.is_none_or(|condition| condition.reason != observed.reason)
    {
        let warning = observed.phase == Phase::Error;
        context.event(server, warning, observed.reason, &observed.message).await;
    }
    Ok(observed.phase)
}
