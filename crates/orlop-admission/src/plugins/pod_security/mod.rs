//! PodSecurity: holds pods to the Pod Security Standards, by labels of their namespaces.

mod checks;
mod policy;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use checks::Pod;
use orlop_api::{
    field_error::{FieldError, FieldPath, aggregate},
    names::NameRule,
    status::Status,
};
use orlop_kinds::accessors::{flag, list, map, present, text, texts};
use policy::{Level, LevelVersion, PREFIX, Policy, Version};
use serde_json::Value;

use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, NAMESPACES, PODS},
    metrics::pod_security::PodSecurityMetrics,
    plugins::pods::{Containers, spec},
};

/// Pods that are checked when a namespace becomes stricter.
const PODS_MAX: usize = 3000;
/// Limit on that check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Subresources of pods that do not change their spec.
const IGNORED_SUBRESOURCES: &[&str] =
    &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Holds pods to levels.
#[derive(Debug)]
pub(super) struct PodSecurity {
    listers: Arc<dyn Listers>,
    default: Policy,
    exempt: Exemptions,
    metrics: PodSecurityMetrics,
}

#[derive(Debug, Default)]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl Exemptions {
    fn has(list: &[String], name: &str) -> bool {
        !name.is_empty() && list.iter().any(|exempt| exempt == name)
    }
}

impl PodSecurity {
    /// Returns the plugin with a PodSecurityConfiguration, which may be null.
    pub(super) fn new(
        listers: Arc<dyn Listers>,
        configuration: &Value,
        metrics: PodSecurityMetrics,
    ) -> Result<Self, String> {
        let mut errors = Vec::new();
        let mut mode = |name: &str| {
            let read = |field: String| {
                let value = text(configuration, &format!("/defaults/{field}")).to_owned();
                (value, FieldPath::root("defaults").child(&field))
            };
            let (level, level_path) = read(name.to_owned());
            let (version, version_path) = read(format!("{name}-version"));
            let parsed = (
                if level.is_empty() { Ok(Level::default()) } else { Level::parse(&level) },
                if version.is_empty() { Ok(Version::default()) } else { Version::parse(&version) },
            );
            errors.extend(parsed.0.err().map(|why| FieldError::invalid(&level_path, level, why)));
            errors.extend(parsed.1.err().map(|why| FieldError::invalid(&version_path, version, why)));
            LevelVersion { level: parsed.0.unwrap_or_default(), version: parsed.1.unwrap_or_default() }
        };
        let default = Policy { enforce: mode("enforce"), warn: mode("warn"), audit: mode("audit") };
        let exempt = Exemptions {
            namespaces: exemptions(configuration, "namespaces", &mut errors),
            runtime_classes: exemptions(configuration, "runtimeClasses", &mut errors),
            usernames: exemptions(configuration, "usernames", &mut errors),
        };
        if errors.is_empty() {
            Ok(Self { listers, default, exempt, metrics })
        } else {
            Err(aggregate(&errors))
        }
    }

    async fn check_namespace(
        &self,
        request: &AdmissionRequest<'_>,
        namespace: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let labels = map(namespace, "/metadata/labels");
        let (policy, errors) = self.default.of_labels(labels);
        let invalid = || Status::invalid(&request.kind.group_kind(), &request.name, &errors);
        let name = text(namespace, "/metadata/name");
        let warn_of_exemption = || {
            let warning = self.exemption_warning(name, &policy, namespace);
            warning.into_iter().for_each(|warning| request.warn(warning));
        };
        let Some(old) = old else {
            if !errors.is_empty() {
                return Err(invalid());
            }
            if Exemptions::has(&self.exempt.namespaces, name) {
                warn_of_exemption();
            }
            return Ok(());
        };
        let (old_policy, old_errors) = self.default.of_labels(map(old, "/metadata/labels"));
        if !errors.is_empty() && errors != old_errors {
            return Err(invalid());
        }
        let (new, old) = (policy.enforce, old_policy.enforce);
        let is_stricter =
            new.level != Level::Privileged && (new.version != old.version || new.level > old.level);
        if !is_stricter {
            return Ok(());
        }
        if Exemptions::has(&self.exempt.namespaces, name) {
            warn_of_exemption();
            return Ok(());
        }
        for warning in self.existing_violations(name, new).await {
            request.warn(warning);
        }
        Ok(())
    }

    /// Returns warnings about the pods of a namespace that violate a level.
    async fn existing_violations(&self, namespace: &str, enforce: LevelVersion) -> Vec<String> {
        let listed = self.listers.list_namespace(PODS, namespace);
        let Ok(Ok(pods)) = tokio::time::timeout(CHECK_TIMEOUT, listed).await else {
            return vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()];
        };
        let pods = self.prioritized(&pods);
        let mut found: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for pod in pods.iter().take(PODS_MAX) {
            let violations = checks::evaluate(enforce, &pod_of(pod));
            if !violations.is_empty() {
                found.entry(checks::reasons(&violations)).or_default().insert(text(pod, "/metadata/name"));
            }
        }
        let mut warnings = Vec::new();
        if pods.len() > PODS_MAX {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {PODS_MAX} of {} existing pods",
                pods.len()
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{enforce}\""
            ));
        }
        let mut each: Vec<String> = found
            .iter()
            .map(|(reasons, names)| {
                let first = names.first().copied().unwrap_or_default();
                match names.len() {
                    1 => format!("{first}: {reasons}"),
                    2 => format!("{first} (and 1 other pod): {reasons}"),
                    count => format!("{first} (and {} other pods): {reasons}", count - 1),
                }
            })
            .collect();
        each.sort();
        warnings.extend(each);
        warnings
    }

    /// Returns the pods to check: one of each controller first, none with an exempt runtime class.
    fn prioritized<'a>(&self, pods: &'a [Arc<Value>]) -> Vec<&'a Value> {
        let (mut first, mut replicas, mut controllers) = (Vec::new(), Vec::new(), BTreeSet::new());
        for pod in pods {
            if Exemptions::has(&self.exempt.runtime_classes, text(pod, "/spec/runtimeClassName")) {
                continue;
            }
            let owners = list(pod, "/metadata/ownerReferences").iter();
            let controller =
                owners.filter(|owner| flag(owner, "/controller")).map(|owner| text(owner, "/uid")).next();
            match controller.is_none_or(|controller| controllers.insert(controller)) {
                true => first.push(&**pod),
                false => replicas.push(&**pod),
            }
        }
        first.extend(replicas);
        first
    }

    /// Returns a warning if an exempt namespace has labels that have no effect.
    fn exemption_warning(&self, name: &str, policy: &Policy, namespace: &Value) -> Option<String> {
        if policy.is_privileged() || policy.is_equivalent(&self.default) {
            return None;
        }
        let labels = map(namespace, "/metadata/labels");
        let is_set = |mode: &str| {
            labels.contains_key(&format!("{PREFIX}{mode}"))
                || labels.contains_key(&format!("{PREFIX}{mode}-version"))
        };
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let shown: Vec<String> = modes
            .iter()
            .filter(|(mode, level)| level.level != Level::Privileged && is_set(mode))
            .map(|(mode, level)| format!("{mode}={level}"))
            .collect();
        Some(format!(
            "namespace {name:?} is exempt from Pod Security, and the policy ({}) will be ignored",
            shown.join(", ")
        ))
    }

    /// Returns the policy of a request's namespace; `None` if the request is exempt.
    async fn policy(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Result<Option<(Policy, Vec<FieldError>)>, Status> {
        let exempt = |why: &'static str| {
            self.metrics.exempted(request);
            request.annotate(format!("{PREFIX}exempt"), why);
        };
        if Exemptions::has(&self.exempt.namespaces, request.namespace()) {
            exempt("namespace");
            return Ok(None);
        }
        if Exemptions::has(&self.exempt.usernames, &request.attributes.user.name) {
            exempt("user");
            return Ok(None);
        }
        let found = self.listers.get(NAMESPACES, "", request.namespace()).await?;
        let Some(namespace) = found else {
            self.metrics.failed(request, request.attributes.resource == "pods");
            let why = format!("failed to lookup namespace {:?}", request.namespace());
            return Err(Status::internal(&why));
        };
        Ok(Some(self.default.of_labels(map(&namespace, "/metadata/labels"))))
    }

    async fn check_pod(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some((policy, errors)) = self.policy(request).await? else { return Ok(()) };
        if errors.is_empty() && policy.is_privileged() {
            request.annotate(format!("{PREFIX}enforce-policy"), "privileged:latest");
            self.metrics.evaluated(request, "enforce", policy.enforce.labels(), true);
            return Ok(());
        }
        if old.is_some_and(|old| !is_significant(pod, old)) {
            return Ok(());
        }
        self.evaluate(request, &policy, &errors, &pod_of(pod), true)
    }

    async fn check_template(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
        // A controller is not refused: its pods are.
        let (policy, errors) = match self.policy(request).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => {
                request.annotate(format!("{PREFIX}error"), error.message);
                return Ok(());
            }
        };
        let is_quiet = policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged;
        let Some(template) = template_of(&request.attributes.resource, object) else { return Ok(()) };
        if errors.is_empty() && is_quiet {
            return Ok(());
        }
        self.evaluate(request, &policy, &errors, &pod_of(template), false)
    }

    fn evaluate(
        &self,
        request: &AdmissionRequest<'_>,
        policy: &Policy,
        errors: &[FieldError],
        pod: &Pod<'_>,
        enforce: bool,
    ) -> Result<(), Status> {
        if Exemptions::has(&self.exempt.runtime_classes, text(pod.spec, "/runtimeClassName")) {
            self.metrics.exempted(request);
            request.annotate(format!("{PREFIX}exempt"), "runtimeClass");
            return Ok(());
        }
        if !errors.is_empty() {
            self.metrics.failed(request, false);
            let why = format!("Failed to parse policy: {}", aggregate(errors));
            request.annotate(format!("{PREFIX}error"), why);
        }
        let mut refusal = None;
        if enforce {
            request.annotate(format!("{PREFIX}enforce-policy"), policy.enforce.to_string());
            let violations = checks::evaluate(policy.enforce, pod);
            self.metrics.evaluated(request, "enforce", policy.enforce.labels(), violations.is_empty());
            if !violations.is_empty() {
                let why =
                    format!("violates PodSecurity \"{}\": {}", policy.enforce, checks::details(&violations));
                refusal = Some(Status::forbidden(&request.group_resource(), &request.name, &why));
            }
        }
        let would_violate = |mode: LevelVersion| {
            let violations = checks::evaluate(mode, pod);
            (!violations.is_empty())
                .then(|| format!("would violate PodSecurity \"{mode}\": {}", checks::details(&violations)))
        };
        if let Some(violations) = would_violate(policy.audit) {
            self.metrics.evaluated(request, "audit", policy.audit.labels(), false);
            request.annotate(format!("{PREFIX}audit-violations"), violations);
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if let Some(warning) = would_violate(policy.warn) {
            self.metrics.evaluated(request, "warn", policy.warn.labels(), false);
            request.warn(warning);
        }
        Ok(())
    }
}

fn exemptions(configuration: &Value, field: &str, errors: &mut Vec<FieldError>) -> Vec<String> {
    let names = texts(configuration, &format!("/exemptions/{field}"));
    for (index, name) in names.iter().enumerate() {
        let path = FieldPath::root("exemptions").child(field).index(index);
        let problems = match field {
            "namespaces" => NameRule::Label.check(name),
            "runtimeClasses" => NameRule::Subdomain.check(name),
            _ if name.is_empty() => vec!["username must not be empty".to_owned()],
            _ => Vec::new(),
        };
        if !problems.is_empty() {
            errors.push(FieldError::invalid(&path, *name, problems.join(", ")));
        } else if names.iter().take(index).any(|earlier| earlier == name) {
            errors.push(FieldError::duplicate(&path, *name));
        }
    }
    names.into_iter().map(str::to_owned).collect()
}

fn pod_of(object: &Value) -> Pod<'_> {
    Pod { metadata: object.get("metadata").unwrap_or(&Value::Null), spec: spec(object) }
}

/// Returns the pod template of an object.
fn template_of<'a>(resource: &str, object: &'a Value) -> Option<&'a Value> {
    present(
        object,
        match resource {
            "podtemplates" => "/template",
            "cronjobs" => "/spec/jobTemplate/spec/template",
            _ => "/spec/template",
        },
    )
}

/// Returns true if an update of a pod changes an image or adds a container.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let images = |list: Containers, pod: &Value| -> Vec<String> {
        list.of(spec(pod)).iter().map(|container| text(container, "/image").to_owned()).collect()
    };
    if [Containers::Main, Containers::Init].iter().any(|list| images(*list, pod) != images(*list, old)) {
        return true;
    }
    let known = Containers::Ephemeral.of(spec(old));
    Containers::Ephemeral.of(spec(pod)).iter().any(|container| {
        let before = known.iter().find(|known| known.get("name") == container.get("name"));
        before.is_none_or(|before| before.get("image") != container.get("image"))
    })
}

#[async_trait]
impl Admission for PodSecurity {
    fn resources(&self) -> Resources {
        Resources::Only(&[
            ("", "namespaces"),
            ("", "pods"),
            ("", "podtemplates"),
            ("", "replicationcontrollers"),
            ("apps", "replicasets"),
            ("apps", "deployments"),
            ("apps", "statefulsets"),
            ("apps", "daemonsets"),
            ("batch", "jobs"),
            ("batch", "cronjobs"),
        ])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Validating && matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        match (request.attributes.resource.as_str(), request.subresource()) {
            ("namespaces", "") => self.check_namespace(request, object, old).await,
            ("pods", subresource) if IGNORED_SUBRESOURCES.contains(&subresource) => Ok(()),
            ("pods", _) => self.check_pod(request, object, old).await,
            ("namespaces", _) => Ok(()),
            (_, "") => self.check_template(request, object).await,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use orlop_api::user::UserInfo;
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    fn namespace(labels: &[(&str, &str)]) -> Value {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).into())).collect();
        json!({"metadata": {"name": "ns", "labels": labels}})
    }

    fn plugin(labels: &[(&str, &str)], configuration: Value) -> PodSecurity {
        let listers = FakeListers::with(&[(NAMESPACES, "", namespace(labels))]);
        PodSecurity::new(listers, &configuration, PodSecurityMetrics::default()).unwrap()
    }

    fn pod(context: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": context["host"] == true,
            "containers": [{"name": "c", "image": "i", "securityContext": context}]}})
    }

    #[tokio::test]
    async fn violation_of_the_enforced_level_is_forbidden() {
        let plugin = plugin(&[("enforce", "baseline"), ("enforce-version", "v1.30")], Value::Null);
        assert_eq!(
            message(Run::create("", "pods").mutate(&plugin, pod(json!({"privileged": true}))).await),
            "pods \"p\" is forbidden: violates PodSecurity \"baseline:v1.30\": privileged (container \"c\" must not set \
             securityContext.privileged=true)"
        );
        assert_eq!(message(Run::create("", "pods").mutate(&plugin, pod(json!({}))).await), "");
        let old = pod(json!({"privileged": true}));
        assert_eq!(message(Run::update("", "pods", old.clone()).mutate(&plugin, old.clone()).await), "");
        let mut changed = old.clone();
        changed["spec"]["containers"][0]["image"] = "other".into();
        assert_ne!(message(Run::update("", "pods", old).mutate(&plugin, changed).await), "");
    }

    #[tokio::test]
    async fn evaluations_and_exemptions_are_counted() {
        let configuration = json!({"exemptions": {"runtimeClasses": ["exempt"]}});
        let labels = [("enforce", "baseline"), ("enforce-version", "v1.30"), ("warn", "restricted")];
        let plugin = plugin(&labels, configuration);
        let mut registry = prometheus_client::registry::Registry::default();
        plugin.metrics.register(&mut registry);
        let create = async |pod: Value| drop(Run::create("", "pods").mutate(&plugin, pod).await);
        create(pod(json!({"privileged": true}))).await;
        create(pod(json!({}))).await;
        let mut exempt = pod(json!({"privileged": true}));
        exempt["spec"]["runtimeClassName"] = "exempt".into();
        create(exempt).await;
        let mut metrics = String::new();
        prometheus_client::encoding::text::encode(&mut metrics, &registry).unwrap();
        let of_pod = "request_operation=\"create\",resource=\"pod\",subresource=\"\"";
        let evaluated = |decision: &str, level: &str, version: &str, mode: &str| {
            format!(
                "pod_security_evaluations_total{{decision=\"{decision}\",policy_level=\"{level}\",\
                 policy_version=\"{version}\",mode=\"{mode}\",{of_pod}}} 1\n"
            )
        };
        for line in [
            evaluated("deny", "baseline", "v1.30", "enforce"),
            evaluated("allow", "baseline", "v1.30", "enforce"),
            evaluated("deny", "restricted", "latest", "warn"),
            format!("pod_security_exemptions_total{{{of_pod}}} 1\n"),
        ] {
            assert!(metrics.contains(&line), "{line} is not in {metrics}");
        }
    }

    #[tokio::test]
    async fn templates_of_controllers_are_warned_of() {
        let plugin = plugin(&[("enforce", "restricted")], Value::Null);
        let deployment =
            json!({"metadata": {"name": "d"}, "spec": {"template": pod(json!({"privileged": true}))}});
        let run = Run::create("apps", "deployments");
        assert_eq!(message(run.mutate(&plugin, deployment).await), "");
        let warnings = run.warnings.take();
        assert!(
            warnings[0]
                .starts_with("would violate PodSecurity \"restricted:latest\": privileged (container \"c\""),
            "{warnings:?}"
        );
    }

    #[tokio::test]
    async fn users_namespaces_and_runtime_classes_are_exempt() {
        let exempt =
            |exemptions: Value| plugin(&[("enforce", "baseline")], json!({"exemptions": exemptions}));
        let bad = || pod(json!({"privileged": true}));
        let run = Run::create("", "pods");
        assert_eq!(message(run.mutate(&exempt(json!({"namespaces": ["ns"]})), bad()).await), "");
        let root = run.clone().by(UserInfo::authenticated("root", []));
        assert_eq!(message(root.mutate(&exempt(json!({"usernames": ["root"]})), bad()).await), "");
        let mut vm = bad();
        vm["spec"]["runtimeClassName"] = "vm".into();
        assert_eq!(message(run.mutate(&exempt(json!({"runtimeClasses": ["vm"]})), vm).await), "");
        assert_ne!(message(run.mutate(&exempt(json!({})), bad()).await), "");
    }

    #[tokio::test]
    async fn defaults_come_from_the_configuration() {
        let configured = plugin(&[], json!({"defaults": {"enforce": "baseline", "warn": "restricted"}}));
        let run = Run::create("", "pods");
        assert_eq!(message(run.mutate(&configured, pod(json!({}))).await), "");
        assert!(run.warnings.take()[0].starts_with("would violate PodSecurity \"restricted:latest\""));
        let wrong = json!({"defaults": {"enforce": "lax"}, "exemptions": {"usernames": ["a", "a"]}});
        assert_eq!(
            PodSecurity::new(Arc::new(FakeListers::default()), &wrong, PodSecurityMetrics::default())
                .unwrap_err(),
            "[defaults.enforce: Invalid value: \"lax\": must be one of privileged, baseline, restricted, \
             exemptions.usernames[1]: Duplicate value: \"a\"]"
        );
    }

    #[tokio::test]
    async fn namespace_with_wrong_labels_is_invalid() {
        let plugin = plugin(&[], Value::Null);
        let refused =
            message(Run::create("", "namespaces").mutate(&plugin, namespace(&[("enforce", "lax")])).await);
        assert!(refused.contains("must be one of privileged, baseline, restricted"), "{refused}");
    }

    #[tokio::test]
    async fn stricter_namespace_warns_of_its_pods() {
        let replica = |name: &str| {
            let mut pod = pod(json!({"privileged": true}));
            pod["metadata"]["name"] = name.into();
            pod
        };
        let host = json!({"metadata": {"name": "host"}, "spec": {"hostNetwork": true}});
        let listers =
            FakeListers::with(&[(PODS, "ns", replica("b")), (PODS, "ns", replica("a")), (PODS, "ns", host)]);
        let plugin = PodSecurity::new(listers, &Value::Null, PodSecurityMetrics::default()).unwrap();
        let run = Run::update("", "namespaces", namespace(&[]));
        run.mutate(&plugin, namespace(&[("enforce", "baseline")])).await.unwrap();
        assert_eq!(
            run.warnings.take(),
            [
                "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 1 other pod): privileged",
                "host: host namespaces",
            ]
        );
    }
}
