//! ServiceAccount: gives pods a service account, and a volume with its token, the cluster's CA and the namespace.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use orlop_api::{group_version::GroupResource, status::Status};
use orlop_auth::node::references::{Target, is_mirror, named_by};
use orlop_kinds::accessors::{annotation, list, present, text};
use rand::Rng;
use serde_json::{Value, json};

use super::pods::{Containers, PODS, map_mut, push, spec, spec_mut};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, SERVICE_ACCOUNTS},
};

const DEFAULT: &str = "default";
/// Prefix of the names of token volumes.
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Annotation of service accounts whose pods may only use the secrets that the account names.
const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// Lifetime of tokens: an hour, and seven seconds by which the issuer knows that nobody asked for it.
const TOKEN_SECONDS: i64 = 3607;
/// Attempts at reading the default account, which a controller creates after the namespace.
const ATTEMPTS: usize = 10;
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Gives pods a service account.
#[derive(Debug)]
pub(super) struct ServiceAccount {
    listers: Arc<dyn Listers>,
}

impl ServiceAccount {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }

    /// Reads a service account. Waits a little for the default one.
    async fn account(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &Value,
        name: &str,
    ) -> Result<Arc<Value>, Status> {
        let namespace = request.namespace();
        let attempts = if name == DEFAULT { ATTEMPTS } else { 1 };
        let pause = Duration::from_millis(rand::rng().random_range(100..200));
        for attempt in 0..attempts {
            if attempt > 0 {
                tokio::time::sleep(pause).await;
            }
            if let Some(account) = self.listers.get(SERVICE_ACCOUNTS, namespace, name).await? {
                return Ok(account);
            }
        }
        let missing = Status::not_found(&GroupResource::new("", "serviceaccount"), name);
        let why = format!("error looking up service account {namespace}/{name}: {}", missing.message);
        Err(request.forbidden(pod, why))
    }

    async fn check(&self, request: &AdmissionRequest<'_>, pod: &Value) -> Result<(), Status> {
        let refuse = |why: String| request.forbidden(pod, why);
        let is_ephemeral =
            request.operation == Operation::Update && request.subresource() == "ephemeralcontainers";
        if !is_ephemeral && request.operation != Operation::Create {
            return Ok(());
        }
        if !is_ephemeral && is_mirror(pod) {
            return check_mirror(pod).map_err(|why| refuse(why.to_owned()));
        }
        let name = text(pod, "/spec/serviceAccountName");
        if name.is_empty() {
            let pod_name = text(pod, "/metadata/name");
            return Err(refuse(format!(
                "no service account specified for pod {}/{pod_name}",
                request.namespace()
            )));
        }
        let account = self.account(request, pod, name).await?;
        if !enforces_mountable_secrets(&account) {
            return Ok(());
        }
        let checked = match is_ephemeral {
            true => check_containers(&account, spec(pod), &[Containers::Ephemeral]),
            false => check_references(&account, spec(pod)),
        };
        checked.map_err(refuse)
    }
}

#[async_trait]
impl Admission for ServiceAccount {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        operation == Operation::Create || (operation, phase) == (Operation::Update, Phase::Validating)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        if !request.subresource().is_empty() {
            return Ok(());
        }
        // The kubelet deletes a mirror pod that differs from its static pod.
        if is_mirror(pod) {
            return self.check(request, pod).await;
        }
        if text(pod, "/spec/serviceAccountName").is_empty() {
            let spec = spec_mut(pod);
            spec.insert("serviceAccountName".into(), DEFAULT.into());
            spec.insert("serviceAccount".into(), DEFAULT.into());
        }
        let account = self.account(request, pod, text(pod, "/spec/serviceAccountName")).await?;
        if is_automounted(&account, pod) {
            mount_token(pod);
        }
        if list(pod, "/spec/imagePullSecrets").is_empty() {
            let secrets = list(&account, "/imagePullSecrets");
            let named: Vec<Value> =
                secrets.iter().map(|secret| json!({"name": text(secret, "/name")})).collect();
            if !named.is_empty() {
                spec_mut(pod).insert("imagePullSecrets".into(), named.into());
            }
        }
        self.check(request, pod).await
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        match (pod, request.subresource()) {
            (Some(pod), "" | "ephemeralcontainers") => self.check(request, pod).await,
            _ => Ok(()),
        }
    }
}

/// Checks a mirror pod, which may name nothing that its node would gain access to.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if named_by(pod).iter().any(|(target, _)| *target == Target::Secret) {
        return Err("a mirror pod may not reference secrets");
    }
    let mut sources = list(pod, "/spec/volumes").iter().flat_map(|volume| list(volume, "/projected/sources"));
    if sources.any(|source| present(source, "/serviceAccountToken").is_some()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

fn is_automounted(account: &Value, pod: &Value) -> bool {
    let of_pod = present(pod, "/spec/automountServiceAccountToken");
    let of_account = present(account, "/automountServiceAccountToken");
    of_pod.or(of_account).and_then(Value::as_bool).unwrap_or(true)
}

fn enforces_mountable_secrets(account: &Value) -> bool {
    matches!(annotation(account, ENFORCE_MOUNTABLE_SECRETS), "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Mounts a volume with the account's token into every container that has no volume there.
fn mount_token(pod: &mut Value) {
    let spec = spec_mut(pod);
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let existing = volumes.map(|volume| text(volume, "/name")).find(|name| name.starts_with(VOLUME_PREFIX));
    let existing = existing.map(str::to_owned);
    let name = existing.clone().unwrap_or_else(generated_name);
    let mut is_needed = false;
    for containers in [Containers::Init, Containers::Main] {
        for container in containers.of_mut(spec) {
            let mounts = list(container, "/volumeMounts");
            if mounts.iter().all(|mount| text(mount, "/mountPath") != MOUNT_PATH) {
                let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
                push(map_mut(container), "volumeMounts", mount);
                is_needed = true;
            }
        }
    }
    if is_needed && existing.is_none() {
        push(spec, "volumes", token_volume(&name));
    }
}

fn generated_name() -> String {
    let mut random = rand::rng();
    let mut letter = || {
        let index = random.random_range(0..SUFFIX_ALPHABET.len());
        SUFFIX_ALPHABET.get(index).copied().map_or('x', char::from)
    };
    let suffix: String = (0..5).map(|_| letter()).collect();
    format!("{VOLUME_PREFIX}{suffix}")
}

fn token_volume(name: &str) -> Value {
    let namespace =
        json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    })
}

fn names<'a>(account: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(account, pointer).iter().map(|reference| text(reference, "/name")).collect()
}

/// Checks that the account names every secret that a pod refers to.
fn check_references(account: &Value, spec: &Value) -> Result<(), String> {
    let mountable = names(account, "/secrets");
    let name = text(account, "/metadata/name");
    for volume in list(spec, "/volumes") {
        let secret = text(volume, "/secret/secretName");
        if present(volume, "/secret").is_some() && !mountable.contains(&secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does \
                 not reference that secret"
            ));
        }
    }
    check_containers(account, spec, &[Containers::Init, Containers::Main])?;
    let pull_secrets = names(account, "/imagePullSecrets");
    for (index, secret) in list(spec, "/imagePullSecrets").iter().enumerate() {
        let secret = text(secret, "/name");
        if !pull_secrets.contains(&secret) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {name} does \
                 not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_containers(account: &Value, spec: &Value, lists: &[Containers]) -> Result<(), String> {
    let mountable = names(account, "/secrets");
    let account = text(account, "/metadata/name");
    for containers in lists {
        let kind = match containers {
            Containers::Init => "init container",
            Containers::Main => "container",
            Containers::Ephemeral => "ephemeral container",
        };
        for container in containers.of(spec) {
            let refuse = |source: String, secret: &str| {
                Err(format!(
                    "{kind} {} with {source} referencing secret.secretName=\"{secret}\" is not allowed because \
                     service account {account} does not reference that secret",
                    text(container, "/name")
                ))
            };
            for variable in list(container, "/env") {
                let secret = text(variable, "/valueFrom/secretKeyRef/name");
                if present(variable, "/valueFrom/secretKeyRef").is_some() && !mountable.contains(&secret) {
                    return refuse(format!("envVar {}", text(variable, "/name")), secret);
                }
            }
            for source in list(container, "/envFrom") {
                let secret = text(source, "/secretRef/name");
                if present(source, "/secretRef").is_some() && !mountable.contains(&secret) {
                    return refuse("envFrom".to_owned(), secret);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    fn accounts(account: Value) -> Arc<FakeListers> {
        let listers = FakeListers::default();
        listers.add(SERVICE_ACCOUNTS, "ns", account);
        Arc::new(listers)
    }

    fn default_account(more: Value) -> Value {
        let mut account = json!({"metadata": {"name": "default"}});
        map_mut(&mut account).extend(more.as_object().unwrap().clone());
        account
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}})
    }

    async fn create(account: Value, pod: Value) -> Result<Value, Status> {
        Run::create("", "pods").mutate(&ServiceAccount::new(accounts(account)), pod).await
    }

    #[tokio::test]
    async fn pod_gets_the_default_account_with_a_mounted_token() {
        let pod =
            create(default_account(json!({"imagePullSecrets": [{"name": "pull"}]})), pod()).await.unwrap();
        assert_eq!(text(&pod, "/spec/serviceAccountName"), "default");
        assert_eq!(text(&pod, "/spec/serviceAccount"), "default");
        let name = text(&pod, "/spec/volumes/0/name");
        assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
        for container in ["containers", "initContainers"] {
            let mount = &pod["spec"][container][0]["volumeMounts"][0];
            assert_eq!(*mount, json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
        }
        let sources = &pod["spec"]["volumes"][0]["projected"]["sources"];
        assert_eq!(sources[0]["serviceAccountToken"], json!({"path": "token", "expirationSeconds": 3607}));
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    }

    #[tokio::test]
    async fn token_is_not_mounted_where_pod_or_account_say_so_or_something_else_is() {
        let off = default_account(json!({"automountServiceAccountToken": false}));
        assert_eq!(create(off.clone(), pod()).await.unwrap()["spec"].get("volumes"), None);
        let mut wanted = pod();
        wanted["spec"]["automountServiceAccountToken"] = true.into();
        assert!(create(off, wanted).await.unwrap()["spec"]["volumes"].is_array());
        let mut taken = pod();
        for list in ["containers", "initContainers"] {
            taken["spec"][list][0]["volumeMounts"] = json!([{"name": "own", "mountPath": MOUNT_PATH}]);
        }
        assert_eq!(create(default_account(json!({})), taken).await.unwrap()["spec"].get("volumes"), None);
    }

    #[tokio::test]
    async fn unknown_account_is_forbidden() {
        let mut wanted = pod();
        wanted["spec"]["serviceAccountName"] = "nobody".into();
        assert_eq!(
            message(create(default_account(json!({})), wanted).await),
            "pods \"p\" is forbidden: error looking up service account ns/nobody: serviceaccount \"nobody\" not found"
        );
    }

    #[tokio::test]
    async fn mirror_pod_may_not_use_accounts_and_secrets() {
        let mirror = |spec: Value| json!({"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": ""}}, "spec": spec});
        let refused =
            |spec: Value| async move { message(create(default_account(json!({})), mirror(spec)).await) };
        let plain = create(default_account(json!({})), mirror(json!({"containers": []}))).await.unwrap();
        assert_eq!(plain["spec"], json!({"containers": []}));
        assert!(
            refused(json!({"serviceAccountName": "a"}))
                .await
                .ends_with("a mirror pod may not reference service accounts")
        );
        assert!(
            refused(json!({"volumes": [{"secret": {"secretName": "s"}}]}))
                .await
                .ends_with("a mirror pod may not reference secrets")
        );
        assert!(
            refused(json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}))
                .await
                .ends_with("a mirror pod may not use ServiceAccountToken volume projections")
        );
    }

    #[tokio::test]
    async fn account_may_limit_the_secrets_of_its_pods() {
        let account = default_account(json!({"metadata": {"name": "default",
            "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}, "secrets": [{"name": "mine"}]}));
        let mut wanted = pod();
        wanted["spec"]["containers"][0]["env"] =
            json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": "mine"}}}]);
        create(account.clone(), wanted.clone()).await.unwrap();
        wanted["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"] = "other".into();
        assert_eq!(
            message(create(account.clone(), wanted).await),
            "pods \"p\" is forbidden: container c with envVar E referencing secret.secretName=\"other\" is not allowed \
             because service account default does not reference that secret"
        );
        let mut volume = pod();
        volume["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "other"}}]);
        assert!(
            message(create(account, volume).await)
                .contains("volume with secret.secretName=\"other\" is not allowed")
        );
    }
}
