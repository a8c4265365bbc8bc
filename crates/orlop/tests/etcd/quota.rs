//! The database quota.

use crate::process::Orlop;

#[test]
fn full_database_raises_nospace_until_disarmed() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("sqlite://{}", folder.path().join("state.db").display());
    let orlop = Orlop::start(&["--endpoint", &endpoint, "--quota-backend-bytes", "300000"]);
    let ctl = orlop.ctl();
    let value = "x".repeat(20_000);
    let full = (0..30).find(|n| {
        let output = ctl.command(&["put", &format!("k{n}"), &value]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("mvcc: database space exceeded")
    });
    assert!(full.is_some(), "the quota is never reached");
    assert!(ctl.ok(&["alarm", "list"]).contains("alarm:NOSPACE"));
    assert!(ctl.fails(&["lease", "grant", "10"]).contains("database space exceeded"));
    assert!(!ctl.command(&["endpoint", "health"]).status().unwrap().success());
    // Reads and deletes work; puts are refused, even when there is room, until the alarm is disarmed.
    // Compaction keeps the newest revision readable, so the last key is deleted separately.
    ctl.ok(&["del", "k1", "kz"]);
    let revision = ctl.json(&["del", "k0"])["header"]["revision"].to_string();
    ctl.ok(&["compaction", &revision, "--physical"]);
    assert!(ctl.fails(&["put", "small", "x"]).contains("database space exceeded"));
    assert!(ctl.ok(&["alarm", "disarm"]).contains("alarm:NOSPACE"));
    assert_eq!(ctl.ok(&["put", "small", "x"]), "OK\n");
    assert_eq!(ctl.ok(&["alarm", "list"]), "");
}
