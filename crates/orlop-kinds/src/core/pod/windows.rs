//! Validation of Windows options, and of options that only one operating system has.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    accessors::{flag, list, present, text},
    validation,
};

const CREDENTIAL_KIB_MAX: usize = 64;
/// A domain is shorter than this.
const DOMAIN_LENGTH_MAX: usize = 256;
const USER_LENGTH_MAX: usize = 104;

/// Lists of containers, in the order in which they are visited.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Fields of a pod's security context that Windows does not have.
const POD_CONTEXT: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];

/// Fields of a container's security context that Windows does not have.
const CONTAINER_CONTEXT: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Calls `visit` with each container of a pod and its path.
fn each_container(spec: &Value, path: &FieldPath, mut visit: impl FnMut(&Value, &FieldPath)) {
    for field in CONTAINERS {
        for (index, container) in list(spec, &format!("/{field}")).iter().enumerate() {
            visit(container, &path.child(field).index(index));
        }
    }
}

/// Validates that a pod has only options of its operating system.
pub(super) fn validate_options_of_system(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let is_windows = match text(spec, "/os/name") {
        "windows" => true,
        "linux" => false,
        _ => return Vec::new(),
    };
    let mut errors = Vec::new();
    let mut refuse = |of: &Value, path: &FieldPath, fields: &[&str], detail: &str| {
        let is_set = |field: &str| match of.get(field) {
            None | Some(Value::Null) => false,
            // Go omits these where they are empty.
            Some(Value::Array(items)) => !items.is_empty(),
            Some(_) => true,
        };
        let given = fields.iter().filter(|field| is_set(field));
        errors.extend(given.map(|field| FieldError::forbidden(&path.child(field), detail)));
    };
    const LINUX: &str = "windows options cannot be set for a linux pod";
    const WINDOWS: &str = "cannot be set for a windows pod";
    let none = Value::Null;
    let context = |of: &Value| of.get("securityContext").unwrap_or(&none).clone();
    let (pod_context, context_path) = (context(spec), path.child("securityContext"));
    if !is_windows {
        refuse(&pod_context, &context_path, &["windowsOptions"], LINUX);
        each_container(spec, path, |container, path| {
            refuse(&context(container), &path.child("securityContext"), &["windowsOptions"], LINUX);
        });
        return errors;
    }
    refuse(&pod_context, &context_path, &POD_CONTEXT, WINDOWS);
    refuse(spec, path, &["hostUsers"], WINDOWS);
    for field in ["hostPID", "hostIPC"] {
        if flag(spec, &format!("/{field}")) {
            refuse(spec, path, &[field], WINDOWS);
        }
    }
    refuse(spec, path, &["shareProcessNamespace"], WINDOWS);
    each_container(spec, path, |container, path| {
        refuse(&context(container), &path.child("securityContext"), &CONTAINER_CONTEXT, WINDOWS);
    });
    errors
}

/// Validates that either all containers are processes of the host, or none is.
pub(super) fn validate_host_processes(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    const POINTER: &str = "/securityContext/windowsOptions/hostProcess";
    let of = |value: &Value| value.pointer(POINTER).and_then(Value::as_bool);
    let pod = of(spec);
    let (mut errors, mut count, mut host_processes) = (Vec::new(), 0, 0);
    each_container(spec, path, |container, path| {
        count += 1;
        let own = of(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let path = path.child("securityContext").child("windowsOptions").child("hostProcess");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.push(FieldError::invalid(&path, own, detail));
        }
        host_processes += usize::from(own.or(pod) == Some(true));
    });
    if host_processes == 0 {
        return errors;
    }
    if host_processes != count {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(path, "", detail));
    }
    if !flag(spec, "/hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(&path.child("hostNetwork"), false, detail));
    }
    errors
}

/// Validates `windowsOptions` of a security context, if there are any.
pub(super) fn validate_windows_options(context: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(options) = present(context, "/windowsOptions") else { return Vec::new() };
    let path = path.child("windowsOptions");
    let mut errors = Vec::new();
    if let Some(name) = options.get("gmsaCredentialSpecName").and_then(Value::as_str) {
        let problems = names::dns1123_subdomain(name);
        errors.extend(validation::invalid_for_each(&path.child("gmsaCredentialSpecName"), name, problems));
    }
    if let Some(spec) = options.get("gmsaCredentialSpec").and_then(Value::as_str) {
        let path = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.push(FieldError::invalid(&path, spec, "gmsaCredentialSpec cannot be an empty string"));
        } else if spec.len() > CREDENTIAL_KIB_MAX * 1024 {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIAL_KIB_MAX} KiB");
            errors.push(FieldError::invalid(&path, spec, detail));
        }
    }
    if let Some(name) = options.get("runAsUserName").and_then(Value::as_str) {
        let path = path.child("runAsUserName");
        let problems = user_name_problems(name).into_iter().map(|why| format!("runAsUserName{why}"));
        errors.extend(validation::invalid_for_each(&path, name, problems.collect()));
    }
    errors
}

/// Returns the problems of a user name, without their first word.
fn user_name_problems(name: &str) -> Vec<String> {
    let one = |why: &str| vec![why.to_owned()];
    if name.is_empty() {
        return one(" cannot be an empty string");
    }
    if name.chars().any(|character| character.is_ascii_control()) {
        return one(" cannot contain control characters");
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>()[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return one(" cannot contain more than one backslash"),
    };
    let mut problems = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_LENGTH_MAX {
            problems.push(format!("'s Domain length must be under {DOMAIN_LENGTH_MAX} characters"));
        }
        if !is_netbios_name(domain) && !names::dns1123_subdomain(&domain.to_lowercase()).is_empty() {
            problems.push("'s Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        problems.push("'s User cannot be empty".to_owned());
    } else if user.len() > USER_LENGTH_MAX {
        problems.push(format!("'s User length must not be longer than {USER_LENGTH_MAX} characters"));
    }
    if !user.is_empty() && user.chars().all(|character| matches!(character, '.' | ' ')) {
        problems.push("'s User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        problems.push("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]".to_owned());
    }
    problems
}

fn is_netbios_name(domain: &str) -> bool {
    const REFUSED: [char; 9] = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    (1..=15).contains(&domain.chars().count()) && !domain.starts_with('.') && !domain.contains(REFUSED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn options_are_of_the_operating_system_of_the_pod() {
        let root = FieldPath::root("spec");
        let windows = json!({"os": {"name": "windows"}, "hostPID": true, "hostIPC": false,
            "securityContext": {"fsGroup": 1, "sysctls": []},
            "containers": [{"securityContext": {"privileged": false, "runAsNonRoot": true}}]});
        assert_eq!(
            messages(validate_options_of_system(&windows, &root)),
            [
                "spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod",
                "spec.hostPID: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
            ]
        );
        let linux =
            json!({"os": {"name": "linux"}, "containers": [{"securityContext": {"windowsOptions": {}}}]});
        assert_eq!(
            messages(validate_options_of_system(&linux, &root)),
            [
                "spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"
            ]
        );
        assert!(validate_options_of_system(&json!({"hostPID": true}), &root).is_empty());
    }

    #[test]
    fn host_processes_are_all_containers_or_none() {
        let options = |host: bool| json!({"securityContext": {"windowsOptions": {"hostProcess": host}}});
        let spec = json!({"containers": [options(true), options(false)]});
        assert_eq!(
            messages(validate_host_processes(&spec, &FieldPath::root("spec"))),
            [
                "spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers",
                "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
            ]
        );
        assert!(validate_host_processes(&json!({"containers": [{}]}), &FieldPath::root("spec")).is_empty());
    }

    #[test]
    fn user_names_are_validated() {
        for (name, problem) in [
            ("", " cannot be an empty string"),
            ("a\tb", " cannot contain control characters"),
            ("a\\b\\c", " cannot contain more than one backslash"),
            ("a*b\\user", "'s Domain doesn't match the NetBios nor the DNS format"),
            ("domain\\", "'s User cannot be empty"),
            ("..", "'s User cannot contain only periods or spaces"),
            ("a@b", "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"),
        ] {
            assert_eq!(user_name_problems(name), [problem], "{name:?}");
        }
        assert!(user_name_problems("ContainerAdministrator").is_empty());
        assert!(user_name_problems("NT AUTHORITY\\SYSTEM").is_empty());
    }
}
