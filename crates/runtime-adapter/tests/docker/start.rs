//! Starting the adapter, and looking at the engine without one.

use events::spec::Mechanism;
use runtime_adapter::container::{ContainerAdapter, ContainerConfig, ProbedImage};
use runtime_adapter::contract::{Subject, check};
use runtime_adapter::ports::PortError;

use super::subject_with;

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_tells_version_and_images() {
    let images = ["leasehold/execution:dev", "leasehold/no-such-image:dev"];
    let probe = runtime_adapter::container::probe(None, None, &images).await.expect("the engine answers");
    assert!(probe.server_version.contains('.'));
    assert!(matches!(probe.images[..], [ProbedImage::Usable(_), ProbedImage::Missing]), "{probe:?}");
    let nowhere = runtime_adapter::container::probe(None, Some("unix:///nowhere/engine.sock"), &[]).await;
    let code = "engine_unreachable";
    assert_eq!(nowhere, Err(PortError::Unavailable { code, effect_possible: true }));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_installed_client_will_do() {
    let clients = ["/usr/bin/docker", "/usr/local/bin/docker"].map(std::path::PathBuf::from);
    let installed: Vec<_> = clients.into_iter().filter(|path| path.exists()).collect();
    assert!(!installed.is_empty());
    for client in installed {
        let configure = |config: &mut ContainerConfig| config.docker_path = Some(client);
        check(subject_with(Mechanism::Docker, configure).await, async |subject: &Subject| {
            let handle = subject.environment().await;
            assert_eq!(subject.sh(&handle, "echo on > f; cat f").await.stdout.head, b"on\n");
            assert_eq!(subject.read(&handle, "f").await.expect("read"), b"on\n");
        })
        .await;
    }
}

/// An image that an earlier release built is told before the first environment, not by it.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_another_version_is_refused_at_start() {
    let tag = format!("leasehold/other-version:{}", uuid::Uuid::now_v7());
    let container = super::engine::docker(&["create", "--network", "none", "leasehold/files:dev"]).await;
    super::engine::docker(&["commit", "--change", "LABEL leasehold.protocol=0", &container, &tag]).await;
    super::engine::docker(&["rm", &container]).await;
    let mut config = super::config(Mechanism::Docker);
    config.files_image.clone_from(&tag);
    let clock = runtime_adapter::contract::TestClock::default().as_clock();
    let refused = ContainerAdapter::start(config, clock).await.err();
    let probe = runtime_adapter::container::probe(None, None, &[&tag]).await.expect("the engine answers");
    super::engine::docker(&["rmi", &tag]).await;
    assert_eq!(refused, Some(PortError::Rejected { code: "guest_version" }));
    assert_eq!(probe.images, [ProbedImage::OtherVersion]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_retry_can_help_is_refused_at_start() {
    let refused = async |configure: fn(&mut ContainerConfig)| {
        let mut config = super::config(Mechanism::Docker);
        configure(&mut config);
        let clock = runtime_adapter::contract::TestClock::default().as_clock();
        ContainerAdapter::start(config, clock).await.err()
    };
    let rejected = |code| Some(PortError::Rejected { code });
    assert_eq!(
        refused(|config| config.mechanism = Mechanism::Microvm).await,
        rejected("mechanism_unsupported")
    );
    assert_eq!(refused(|config| config.uids = 1000..2000).await, rejected("uids_invalid"));
    assert_eq!(
        refused(|config| config.files_image = "leasehold/none:dev".into()).await,
        rejected("unknown_image")
    );
    let missing = Some(PortError::Unavailable { code: "engine_client_missing", effect_possible: false });
    assert_eq!(refused(|config| config.docker_path = Some("/nowhere/docker".into())).await, missing);
    assert_eq!(refused(|config| config.docker_path = Some("docker".into())).await, missing);
    // What production asks of the engine; this one's release says which answer is right.
    let engine = super::engine::docker(&["version", "--format", "{{.Server.Version}}"]).await;
    let major: u32 = engine.split('.').next().and_then(|major| major.parse().ok()).expect("a version");
    let answer = refused(|config| config.allow_old_engine = false).await;
    if major < 25 {
        assert_eq!(answer, rejected("engine_too_old"));
    } else {
        assert!(
            answer.is_none() || answer == rejected("runc_too_old") || engine.starts_with("25.0."),
            "{answer:?}"
        );
    }
}
