//! Build information.

/// The version of Orlop.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from.
pub(crate) const REVISION: &str = env!("ORLOP_REVISION");
/// Date of that commit, so that builds of one commit are identical.
pub(crate) const BUILD_DATE: &str = env!("ORLOP_BUILD_DATE");
const RUSTC: &str = env!("ORLOP_RUSTC");

/// Returns the platform in Go's terms, such as `linux/amd64`.
fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

/// Labels of the build metric. Dashboards require `goversion`; it holds the version of rustc.
pub(crate) fn labels() -> Vec<(&'static str, String)> {
    vec![
        ("version", VERSION.to_owned()),
        ("revision", REVISION.to_owned()),
        ("build_date", BUILD_DATE.to_owned()),
        ("goversion", RUSTC.to_owned()),
        ("compiler", "rustc".to_owned()),
        ("platform", platform()),
    ]
}

/// Returns the body of `/version`.
pub(crate) fn json() -> String {
    let (major, rest) = VERSION.split_once('.').unwrap_or((VERSION, ""));
    let minor = rest.split('.').next().unwrap_or_default();
    serde_json::json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("v{VERSION}"),
        "gitCommit": REVISION,
        "buildDate": BUILD_DATE,
        "goVersion": RUSTC,
        "compiler": "rustc",
        "platform": platform(),
    })
    .to_string()
}
