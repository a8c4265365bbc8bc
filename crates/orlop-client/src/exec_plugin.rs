//! Credential plugins: programs that print an ExecCredential.

use std::{process::Stdio, time::Duration};

use jiff::Timestamp;
use orlop_auth::pki::Credential;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::error::ConfigError;

/// Limit on a plugin's run. It may ask a person to log in.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Credentials that a plugin printed.
pub(crate) struct Issued {
    pub(crate) token: Option<String>,
    pub(crate) identity: Option<Credential>,
    pub(crate) expires: Option<Timestamp>,
}

/// Runs the plugin of a kubeconfig's `exec`. `cluster` is passed on where the plugin wants it.
pub(crate) async fn run(exec: &Value, cluster: &Value) -> Result<Issued, ConfigError> {
    let text = |field: &str| exec[field].as_str().unwrap_or_default().to_owned();
    let command = text("command");
    let failed = |reason: String| ConfigError::Plugin { command: command.clone(), reason };
    let is_interactive = exec["interactiveMode"] != "Never";
    let mut spec = json!({"interactive": is_interactive});
    if exec["provideClusterInfo"] == true {
        spec["cluster"] = cluster.clone();
    }
    let info = json!({"apiVersion": exec["apiVersion"], "kind": "ExecCredential", "spec": spec});
    let arguments = exec["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let variables = exec["env"].as_array().into_iter().flatten();
    let variables = variables.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
    let mut program = Command::new(&command);
    program.args(arguments).envs(variables).env("KUBERNETES_EXEC_INFO", info.to_string());
    program.stdout(Stdio::piped()).kill_on_drop(true);
    match is_interactive {
        true => program.stdin(Stdio::inherit()).stderr(Stdio::inherit()),
        false => program.stdin(Stdio::null()).stderr(Stdio::piped()),
    };
    let output = tokio::time::timeout(TIMEOUT, program.output()).await;
    let output = output.map_err(|_| failed("it does not end".to_owned()))?;
    let output = output.map_err(|error| match text("installHint") {
        hint if hint.is_empty() => failed(error.to_string()),
        hint => failed(format!("{error}\n\n{hint}")),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim()).trim_end_matches(": ").to_owned()));
    }
    let printed: Value = serde_json::from_slice(&output.stdout)
        .or_else(|_| serde_saphyr::from_slice(&output.stdout))
        .map_err(|error| failed(format!("it printed no ExecCredential: {error}")))?;
    issued(&printed).map_err(failed)
}

fn issued(printed: &Value) -> Result<Issued, String> {
    let status = printed.get("status").ok_or("it printed no credentials")?;
    let text = |field: &str| {
        status.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let expires = text("expirationTimestamp").map(|time| time.parse::<Timestamp>()).transpose();
    let expires = expires.map_err(|error| format!("invalid expirationTimestamp: {error}"))?;
    let identity = text("clientCertificateData").zip(text("clientKeyData"));
    let identity = identity.map(|(certificate, key)| Credential { certificate, key });
    Ok(Issued { token: text("token"), identity, expires })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::run;

    fn plugin(script: &str) -> Value {
        json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "env": [{"name": "NAME", "value": "ann"}], "interactiveMode": "Never", "provideClusterInfo": true})
    }

    #[tokio::test]
    async fn plugin_receives_the_cluster_and_prints_a_token() {
        let script =
            r#"printf '{"status":{"token":"%s","expirationTimestamp":"2030-01-01T00:00:00Z"}}' "$NAME""#;
        let issued = run(&plugin(script), &json!({"server": "https://a"})).await.unwrap();
        assert_eq!(issued.token.as_deref(), Some("ann"));
        assert_eq!(issued.expires.unwrap().to_string(), "2030-01-01T00:00:00Z");
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *'"server":"https://a"'*) echo 'status: {token: seen}';; esac"#;
        let issued = run(&plugin(script), &json!({"server": "https://a"})).await.unwrap();
        assert_eq!(issued.token.as_deref(), Some("seen"));
    }

    #[tokio::test]
    async fn failure_of_a_plugin_is_reported_with_its_message() {
        let error = run(&plugin("echo no ticket >&2; exit 3"), &Value::Null).await.err().unwrap().to_string();
        assert!(error.contains("no ticket") && error.contains("sh"), "{error}");
        assert!(run(&plugin("echo nonsense"), &Value::Null).await.is_err());
    }
}
